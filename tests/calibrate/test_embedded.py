"""The embedded model: its identity on both backends, and a small calibration of it."""

from __future__ import annotations

import json
import time

import pytest
from typer.testing import CliRunner

from adaptivespec.calibrate.certificate import Certificate

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def engines(model_cache):
    from adaptivespec import Engine

    options = {"cache_dir": model_cache, "local_files_only": True}
    made = [Engine.from_pretrained(backend=backend, **options) for backend in ("torch", "auto")]
    yield made
    for engine in made:
        engine.close()


def test_backends_agree_on_model_and_head(engines):
    from adaptivespec.engine.identity import identity_of

    first, second = map(identity_of, engines)
    for name in ("model", "head"):
        assert first[name] == second[name]
        assert len(first[name]["digest"]) == 16
    assert first["backend"] == "torch"
    assert first["model"]["digest"] != first["head"]["digest"]


def test_it_is_quick(engines):
    from adaptivespec.engine.identity import identity_of

    begin = time.process_time()
    identity_of(engines[0])
    assert time.process_time() - begin < 0.3


def test_its_files_say_the_same_to_any_engine(engines):
    from adaptivespec.calibrate.identity import weights_at
    from adaptivespec.engine.identity import head_of, model_of

    engine = engines[0]
    model, head = engine.files
    assert weights_at(str(model), "another name").same(model_of(engine))
    assert weights_at(str(head), "another name").same(head_of(engine))


@pytest.mark.slow
def test_a_calibration_of_it_serves(engines, tmp_path, model_cache):
    """Ten prompts say little: at a budget of 40 % they certify something."""
    from adaptivespec.cli.main import app

    prompts = tmp_path / "prompts.jsonl"
    words = [
        "river",
        "mountain",
        "window",
        "garden",
        "bottle",
        "candle",
        "pencil",
        "basket",
        "mirror",
        "ladder",
    ]
    lines = [json.dumps({"prompt": f"Repeat this word: {word}", "answer": word}) for word in words]
    prompts.write_text("\n".join(lines), encoding="utf-8")
    cache = [] if model_cache is None else ["--cache-dir", model_cache]
    arguments = ["--prompts", str(prompts), "--grade", "contains", "--max-drop", "40%"]
    arguments += ["--confidence", "90%", "--kappas", "0.9,0.5", "-n", "16", "--offline"]
    folder = tmp_path / "out"
    result = CliRunner().invoke(app, ["calibrate", *arguments, *cache, "-o", str(folder)])
    assert result.exit_code == 0, result.stderr
    made = Certificate.read(folder / "certificate.json")
    assert made.n == 10
    assert made.model.digest is not None
    text = ["generate", "-p", "Hello", "-n", "4", "--json", "--offline", *cache]
    answer = CliRunner().invoke(app, [*text, "--rule-config", str(folder / "certificate.json")])
    assert answer.exit_code == 0
    assert "strict serves" not in answer.stderr
    assert json.loads(answer.stdout)["policy"] == made.policy
