"""What the check runs on: GPU, driver, versions, and whether the plugin fits this SGLang."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from gpu.checks import Check

PACKAGES = ("adaptivespec", "sglang", "torch", "triton", "transformers", "flashinfer-python")
_GPU = ("name", "driver_version", "memory.total", "memory.used")
_MEBIBYTE = 1 << 20


def describe(device: str) -> dict[str, Any]:
    """Facts for the report; what cannot be found out is None."""
    gpu = _gpu() if device == "cuda" else None
    return {
        "gpu": gpu,
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "cuda": _cuda(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def memory(machine: dict[str, Any]) -> float | None:
    """Bytes of the GPU; None without one."""
    return machine["gpu"] and machine["gpu"]["memory.total"] * _MEBIBYTE


def checks(machine: dict[str, Any], device: str, plugin: bool) -> list[Check]:
    """The device is there and, with `plugin`, that is installed and SGLang as it needs it."""
    gpu = machine["gpu"]
    name = gpu["name"] if gpu else "nvidia-smi shows none"
    there = (
        Check("a GPU", "skipped", "a CPU was asked for")
        if device == "cpu"
        else _check("a GPU", gpu is not None, name)
    )
    return [there, *(_plugin_checks(machine) if plugin else [])]


def _plugin_checks(machine: dict[str, Any]) -> list[Check]:
    from adaptivespec.integrations.sglang.plugin import seam_problems

    found = [point for point in entry_points(group="sglang.srt.plugins") if _ours(point.value)]
    problems = seam_problems()
    where = f"SGLang {machine['versions']['sglang']}"
    return [
        _check(
            "SGLang finds the plugin",
            bool(found),
            f"{found[0].name} = {found[0].value}" if found else "no entry point of adaptivespec",
        ),
        _check(
            "SGLang has every seam",
            not problems,
            f"{where}: {'; '.join(problems) if problems else 'nothing is missing'}",
        ),
    ]


def _check(name: str, holds: bool, detail: str) -> Check:
    return Check(name, "pass" if holds else "fail", detail)


def _ours(value: str) -> bool:
    return value.partition(":")[0].split(".")[0] == "adaptivespec"


def _gpu() -> dict[str, Any] | None:
    """The first GPU by nvidia-smi, memory in MiB."""
    if (command := shutil.which("nvidia-smi")) is None:
        return None
    query = [command, f"--query-gpu={','.join(_GPU)}", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    gpus = [line.split(", ") for line in text.splitlines()]
    facts: dict[str, Any] = dict(zip(_GPU, gpus[0], strict=True))
    facts |= {key: float(facts[key]) for key in _GPU if key.startswith("memory")}
    return {**facts, "count": len(gpus)}


def _cuda() -> str | None:
    """The CUDA release that torch was built for."""
    import torch

    return torch.version.cuda


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this checkout, where it is one."""
    git = shutil.which("git")
    here = Path(__file__).resolve().parent
    if git is None:
        return None
    done = subprocess.run(  # noqa: S603
        [git, "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None
