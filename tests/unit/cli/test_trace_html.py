"""`adaptivespec generate --trace-html` with a fake engine: where the page goes, and when."""

from __future__ import annotations

import json
import re


def test_a_page_needs_no_trace_file(run, engine, tmp_path):
    page = tmp_path / "out.html"
    result = run("generate", "-p", "Why?", "--trace-html", str(page))
    assert result.exit_code == 0, result.stderr
    assert engine.calls[-1].trace is True
    text = page.read_text(encoding="utf-8")
    held = json.loads(re.search(r'id="trace">(.*?)</script>', text, re.S).group(1))
    assert held["header"]["model"] == "fake"
    assert (held["prompt"], held["text"]) == ("Why?", "The sky is blue.")


def test_a_place_that_cannot_be_written_is_refused_before_a_model_is_loaded(run, engine, tmp_path):
    result = run("generate", "-p", "x", "--trace-html", str(tmp_path / "nowhere" / "out.html"))
    assert result.exit_code == 2
    assert "trace_html: cannot write" in result.stderr
    assert not engine.loaded_with


def test_nothing_is_left_or_lost_when_there_is_nothing_to_write(run, engine, tmp_path):
    engine.limit = 0
    fresh, old = tmp_path / "fresh.html", tmp_path / "old.html"
    old.write_text("kept")
    for path in (fresh, old):
        assert run("generate", "-p", "x", "--trace-html", str(path)).exit_code == 2
    assert not fresh.exists()
    assert old.read_text() == "kept"


def test_one_file_cannot_hold_both(run, engine, tmp_path):
    path = str(tmp_path / "t")
    result = run("generate", "-p", "x", "--trace", path, "--trace-html", path)
    assert result.exit_code == 2
    assert "Name two files" in result.stderr
    assert not engine.loaded_with
