import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval import requirements
from adaptivespec.eval.bench import run
from adaptivespec.eval.compare import compare
from adaptivespec.eval.report import write_report
from eval.test_bench import BENCH


@pytest.mark.parametrize(
    "begin",
    [
        lambda folder: run(BENCH, folder, lambda event: None, lambda text: None),
        lambda folder: write_report(folder),
        lambda folder: compare(folder, folder),
    ],
)
def test_what_is_missing_is_said_before_anything_is_done(monkeypatch, tmp_path, begin):
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"scipy and matplotlib not installed.*\[eval\]"):
        begin(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mathematics_needs_its_grader_only_where_it_is_asked(monkeypatch):
    def found(name):
        return None if name == "math_verify" else object()

    monkeypatch.setattr(requirements, "find_spec", found)
    requirements.require(("json", "gsm8k"))
    with pytest.raises(ConfigError, match="math-verify"):
        requirements.require(("json", "math500"))
