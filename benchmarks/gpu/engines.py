"""Runs the process of one engine, and never longer than it may."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.plan import Pass

SERVE = Path(__file__).with_name("serve.py")
EMBEDDED = Path(__file__).with_name("embedded.py")
INTERRUPTED = "interrupted"
_GRACE = 15.0
#: "Capture draft decode CUDA graph end. elapsed=1.20 s, mem usage=0.06 GB, ..."
_CAPTURE = re.compile(r"Capture ([^.]*) end\..*?elapsed=([\d.]+) s, mem usage=(-?[\d.]+) GB")
#: "  (4, 3, 5)      1.20 s    0.06 GB", from the plugin
_STATE = re.compile(r"\((\d+), (\d+), (\d+)\) +([\d.]+) s +(-?[\d.]+) GB")


def run(
    name: str,
    arguments: Mapping[str, Any],
    configuration: str | None,
    prompts: list[str],
    passes: list[Pass],
    enough: float,
    most: float,
    folder: Path,
) -> dict[str, Any]:
    """What the engine did: its lines, and how it ended.

    Its job, lines and log stay in ``folder`` under ``name``.  Returns ``server`` (None when it did
    not start), ``passes`` by name, ``captures`` and ``states``, ``seconds``, and ``error``: None
    when all its work was done, INTERRUPTED when a KeyboardInterrupt came.
    """
    job, out, log = (folder / f"{name}.{suffix}" for suffix in ("json", "jsonl", "log"))
    out.unlink(missing_ok=True)
    work = {
        "engine": dict(arguments),
        "prompts": prompts,
        "passes": [asdict(each) for each in passes],
        "enough": enough,
        "out": str(out),
    }
    job.write_text(json.dumps(work), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "ADAPTIVESPEC_CONFIG"}
    if configuration is not None:
        environment["ADAPTIVESPEC_CONFIG"] = configuration
    begin = time.monotonic()
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(EMBEDDED if name == "embedded" else SERVE), str(job)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(most)
            error = None if code == 0 else f"ended with status {code}"
        except subprocess.TimeoutExpired:
            error = f"stopped after {most:.0f} s"
        except KeyboardInterrupt:  # the caller still has to write down what was done
            error = INTERRUPTED
        finally:
            _stop(process)
    text = log.read_text(encoding="utf-8", errors="replace")
    result = collect(read_lines(out))
    if result["ended"] is not None and error != INTERRUPTED:
        error = None  # SGLang's own end may be unclean; all work was done
    elif error != INTERRUPTED:
        error = f"{error or 'ended early'}: {last_error(text)}"
    return {
        **result,
        "captures": captures(text),
        "states": states(text),
        "seconds": time.monotonic() - begin,
        "error": error,
        "log": str(log),
    }


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the engine's process and those it started: they form a group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(_GRACE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that may end in the middle of one, or not be there."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def collect(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The lines of ``serve.py`` by what they are."""
    result: dict[str, Any] = {"server": None, "started": None, "ended": None, "passes": {}}
    for line in lines:
        if "name" in line:
            result["passes"][line.pop("name")] = line
        else:
            result |= line
    return result


def captures(log: str) -> list[dict[str, Any]]:
    """Every CUDA graph capture that SGLang's log tells of: what, seconds, GB."""
    return [
        {"what": what, "seconds": float(seconds), "gigabytes": float(size)}
        for what, seconds, size in _CAPTURE.findall(log)
    ]


def states(log: str) -> list[dict[str, Any]]:
    """The plugin's states beyond the largest triple's: triple, seconds, GB."""
    return [
        {
            "triple": [int(number) for number in triple],
            "seconds": float(seconds),
            "gigabytes": float(size),
        }
        for *triple, seconds, size in _STATE.findall(log)
    ]


def last_error(log: str) -> str:
    """The last line of a log that names an exception, else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b\w*(Error|Exception)\b: ", line)]
    return (named or lines or [""])[-1][:300]
