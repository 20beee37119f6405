"""The seam check finds what a release lacks, by name, from its source alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptivespec.integrations.sglang.seams import SEAMS, Seam, missing_seams


def source_of(seam: Seam) -> list[str]:
    """A definition that has just what the seam asks for."""
    if seam.fields:
        return [f"class {seam.name}:", *(f"    {name}: int" for name in seam.fields)]
    owner, _, method = seam.name.rpartition(".")
    name, indent = method, "    " if owner else ""
    call = "pass"
    if seam.calls is not None:
        callee, keywords = seam.calls
        call = f"{callee}({', '.join(f'{k}={k}' for k in keywords)})"
    body = [f"{indent}def {name}({', '.join(seam.params)}):", f"{indent}    {call}"]
    return [f"class {owner}:", *body] if owner else body


def write_release(root: Path, seams: tuple[Seam, ...]) -> Path:
    """A package that offers these seams; a class that has several is written several times."""
    for seam in seams:
        path = root.joinpath(*seam.module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(source_of(seam)) + "\n")
    return root


def test_a_release_with_every_seam_passes(tmp_path: Path) -> None:
    assert missing_seams(write_release(tmp_path, SEAMS)) == []


@pytest.mark.parametrize("index", range(len(SEAMS)), ids=[seam.name for seam in SEAMS])
def test_each_missing_seam_is_named(tmp_path: Path, index: int) -> None:
    rest = SEAMS[:index] + SEAMS[index + 1 :]
    problems = missing_seams(write_release(tmp_path, rest))
    seam = SEAMS[index]
    assert problems == [f"sglang.{seam.module}:{seam.name} is not there"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def f(a):\n    g(x=1)\n", "has no parameter b; it has a"),
        ("def f(a, *, b):\n    h(x=1)\n", "does not call g(x=)"),
        ("def f(a, b):\n    g(y=1)\n", "does not call g(x=)"),
        ("def f(a, b):\n    other.g(x=1)\n", "does not call g(x=)"),
        ("if cuda:\n    def f(a, b):\n        g(x=1)\nelse:\n    def f():\n        pass\n", None),
        ("try:\n    def f(a, **b):\n        g(x=1, y=2)\nexcept E:\n    pass\n", None),
        ("from sglang.low.place import f\n", None),
        ("from elsewhere import f\n", "is not there"),
    ],
)
def test_what_differs_is_said(tmp_path: Path, source: str, problem: str | None) -> None:
    from adaptivespec.integrations.sglang import seams

    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "place.py").write_text("def f(a, b):\n    g(x=1)\n", encoding="utf-8")
    (tmp_path / "mod.py").write_text(source, encoding="utf-8")
    found = seams._check(tmp_path, Seam("mod", "f", ("a", "b"), calls=("g", ("x",))))
    assert found == (None if problem is None else f"sglang.mod:f {problem}")


def test_a_class_is_checked_by_its_declared_fields(tmp_path: Path) -> None:
    from adaptivespec.integrations.sglang import seams

    (tmp_path / "mod.py").write_text("class C:\n    a: int\n    b = 2\n", encoding="utf-8")
    assert seams._check(tmp_path, Seam("mod", "C", fields=("a",))) is None
    assert seams._check(tmp_path, Seam("mod", "C", fields=("a", "b"))) == (
        "sglang.mod:C declares no b"
    )
