import subprocess
import sys

import pytest

HOSTS = ("rich", "typer", "fastapi", "transformers", "prompt_toolkit", "tokenizers")
HEAVY = (*HOSTS, "torch", "numpy", "pydantic", "gguf", "safetensors", "huggingface_hub")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import adaptivespec", HEAVY),
        ("import adaptivespec.native.build", HEAVY),
        ("import adaptivespec.core", (*HOSTS, "torch")),
        ("import adaptivespec.core.errors", (*HOSTS, "torch", "pydantic")),
        ("from adaptivespec.policy import make_policy; make_policy('dcs')", (*HOSTS, "torch")),
        ("from adaptivespec.verify import make_rule, rule_names", (*HOSTS, "torch")),
        ("from adaptivespec.verify import make_rule; make_rule('safe')", HOSTS),
        ("from adaptivespec.core import DraftTree, StopState, Statistics", HOSTS),
    ],
)
def test_imports_stay_light(statement, absent):
    code = f"import sys; {statement}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_core_imports_nothing_of_ours():
    code = (
        "import sys, pkgutil, importlib, adaptivespec.core as core\n"
        "names = [m.name for m in pkgutil.iter_modules(core.__path__)]\n"
        "[importlib.import_module(f'adaptivespec.core.{name}') for name in names]\n"
        "ours = {m.split('.')[1] for m in sys.modules if m.startswith('adaptivespec.')}\n"
        "print(sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['core']"


def test_lazy_names():
    import adaptivespec.core as core
    from adaptivespec.core.tree import DraftTree

    assert core.DraftTree is DraftTree
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        core.nothing  # noqa: B018


def test_the_callable_for_transformers_needs_no_transformers_to_be_named():
    import adaptivespec
    from adaptivespec.integrations.transformers import generate

    assert adaptivespec.transformers.generate is generate
