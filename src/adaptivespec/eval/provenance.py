"""Where and how a result came about: time, commit, versions, command, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import adaptivespec

__all__ = ["command_line", "load_average", "provenance"]

PACKAGES = ("torch", "numpy", "scipy", "tokenizers", "gguf", "math-verify", "openai")
"""Those whose version can change a result."""


def provenance(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """What identifies this moment, as JSON values.

    Args:
        argv: the command; this process's own where it is None.
    """
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_commit(),
        "command": command_line(sys.argv if argv is None else argv),
        "versions": {"adaptivespec": adaptivespec.__version__, "python": platform.python_version()}
        | {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "machine": {
            "processor": processor(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def command_line(argv: Sequence[str]) -> str:
    """The command as a user would type it: no folder before its name, no secrets."""
    words = [Path(argv[0]).name, *argv[1:]] if argv else []
    if words and words[0] == "__main__.py":
        words[0] = "adaptivespec"
    hidden = [
        "***" if index and words[index - 1] in ("--api-key", "--hub-token") else word
        for index, word in enumerate(words)
    ]
    hidden = [
        f"{word.partition('=')[0]}=***" if word.startswith(("--api-key=", "--hub-token=")) else word
        for word in hidden
    ]
    return " ".join(f"'{word}'" if set(word) & set(' ;*?{}"') else word for word in hidden)


def git_commit() -> str | None:
    """The commit this package was run from, "-dirty" with changes of its own; None outside git."""
    folder = Path(adaptivespec.__file__).parent
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # no repository, or that of somebody else
    return f"{commit}-dirty" if _git(folder, "status", "--porcelain", "--", ".") else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  fixed words
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's own name, and the vector instructions that speed depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    flags = set(facts.get("flags", "").split())
    known = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")]
    found = [name for name in known if name in flags]
    return f"{facts.get('model name', platform.machine())} ({', '.join(found) or 'no vectors'})"


def load_average() -> float | None:
    """Processes that wanted a CPU in the last minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None
