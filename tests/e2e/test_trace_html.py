"""`adaptivespec generate --trace-html`: one file that holds the generation."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.serve.page import render

pytestmark = pytest.mark.network

PROMPT = "Why is the sky blue?"
OPTIONS = (
    "generate",
    "-p",
    PROMPT,
    "--max-tokens",
    "24",
    "--rule",
    "margin:0.2",
    "--policy",
    "dcs",
)


def embedded(path: Path) -> dict[str, Any]:
    page = path.read_text(encoding="utf-8")
    assert page.startswith(render()[:500])
    return json.loads(re.search(r'id="trace">(.*?)</script>', page, re.S).group(1))


def test_the_page_holds_what_the_trace_file_holds(cli, tmp_path):
    page, trace = tmp_path / "out.html", tmp_path / "t.jsonl"
    done = cli(*OPTIONS, "--trace-html", str(page), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    held = embedded(page)
    header, *steps = [json.loads(line) for line in trace.read_text("utf-8").splitlines()]
    assert held["steps"] == steps
    for name in ("model", "rule", "policy", "lossless", "stop_ids", "prompt_tokens"):
        assert held["header"][name] == header[name]
    assert held["prompt"] == PROMPT
    assert held["text"] == done.stdout.removesuffix("\n")
    texts: dict[str, str] = {}
    for step in held["steps"]:
        texts |= step["texts"]
    ids = [steps[0]["nodes"]["token"][0], *(token for step in steps for token in step["tokens"])]
    assert "".join(texts[str(token)] for token in ids) == held["text"]


def test_ctrl_c_writes_the_page_of_what_there_is(start, tmp_path):
    page = tmp_path / "out.html"
    options = ("-p", PROMPT, "--max-tokens", "4000", "--ignore-eos", "--trace-html", str(page))
    process = start("generate", *options)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    held = embedded(page)
    assert held["text"].strip()
