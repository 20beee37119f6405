"""Trace files on the page: opened, dropped, saved, refused, and never taken for markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptivespec.serve.page import render
from fakes import page_story
from fakes.page_reading import shown, story, tip, trace_file

HOSTILE = "</script><img src=x onerror=document.title='owned'><!-- & \u2028"


def test_hostile_texts_stay_texts(filed):
    words = [f"{HOSTILE}{i}" for i in range(len(page_story.WORDS))]
    head = page_story.header(prompt=HOSTILE, model=HOSTILE, rule=HOSTILE, stop_ids=[])
    page = filed(render(trace=story(header=head, steps=page_story.steps(words))))
    assert page.locator(".answer .t").first.text_content() == words[1]
    assert page.locator(".source q").inner_text().startswith("</script>")
    page.locator(".answer .promoted").hover()
    assert "</script>" in tip(page)
    assert page.locator("img").count() == 0
    assert page.title() == "AdaptiveSpec"


def test_a_file_is_opened_and_another_beside_it(filed, tmp_path):
    page = filed(render())
    assert page.locator("#empty").is_visible()
    one = trace_file(tmp_path / "a.jsonl", [page_story.header(), *page_story.steps()])
    page.set_input_files("#file", one)
    page.wait_for_selector(".answer .t")
    assert page.locator("#empty").is_hidden()
    assert shown(page) == page_story.TEXT
    assert "What of the sky?" in page.locator(".source").inner_text()
    two = tmp_path / "b.json"
    two.write_text(json.dumps({"header": page_story.header(), "steps": page_story.strict_steps()}))
    page.set_input_files("#file", [one, two])
    page.wait_for_selector(".answer .differs >> nth=1")
    told = page.locator("#versus p").inner_text()
    assert told.startswith("The first 4 tokens are the same; then A has “·and” and B “.”.")
    assert page.locator(".answer .differs").all_text_contents() == [" and", "."]


def test_a_file_is_dropped_onto_the_page(filed):
    page = filed(render())
    text = "\n".join(map(json.dumps, [page_story.header(), *page_story.steps()])) + "\n"
    page.evaluate(
        """(text) => {
          const carried = new DataTransfer();
          carried.items.add(new File([text], "t.jsonl"));
          for (const name of ["dragover", "drop"]) {
            document.body.dispatchEvent(
              new DragEvent(name, { dataTransfer: carried, bubbles: true, cancelable: true }),
            );
          }
        }""",
        text,
    )
    page.wait_for_selector(".answer .t")
    assert shown(page) == page_story.TEXT


def test_a_trace_is_saved_as_it_was(filed):
    page = filed(render(trace=story()))
    with page.expect_download() as saved:
        page.locator("[data-ref=save]").click()
    assert saved.value.suggested_filename == "trace.jsonl"
    lines = Path(saved.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [page_story.header(), *page_story.steps()]


def test_old_traces_without_texts_show_ids(filed, tmp_path):
    lines = [page_story.header(), *page_story.steps()]
    for line in lines:
        line.pop("texts", None)
        line.pop("prompt", None)
    page = filed(render())
    page.set_input_files("#file", trace_file(tmp_path / "old.jsonl", lines))
    page.wait_for_selector(".answer .t")
    assert page.locator(".answer .t").first.text_content() == "#1"
    assert page.locator(".node text").first.text_content() == "#7"


def changed(index: int, **changes: Any) -> list[Any]:
    lines = [page_story.header(), *page_story.steps()]
    lines[index] = {**lines[index], **changes}
    return lines


MALFORMED = {
    "no header": ([*page_story.steps()], "Line 1"),
    "no json": (["hello"], "Line 1"),
    "empty": ([""], "The file is empty"),
    "another version": (changed(0, adaptivespec_trace=2), "Line 1: the format's version is 2"),
    "a broken line": ([page_story.header(), "{", *page_story.steps()[1:]], "Line 2 is not JSON"),
    "a list": ([page_story.header(), "[]"], "Line 2 is not a step"),
    "a gap": (changed(2, position=9), "Line 3 begins at position 9, and not at 4"),
    "a far start": (changed(1, position=10**9), "Line 2 begins at position 1000000000"),
    "a short list": (changed(3, strict=[]), "Line 4 commits 1 token, and strict has 0"),
    "an unknown kind": (changed(3, kinds=["<b>"]), "Line 4 has a token of unknown kind"),
    "no tree": (changed(1, nodes={"token": []}), "Line 2 has a tree without nodes"),
    "a stray path": (changed(1, path=[0, 5]), "Line 2 has a path"),
    "a cycle": (
        changed(2, nodes={**page_story.steps()[1]["nodes"], "parent": [-1, 2, 1]}),
        "Line 3 has a node 1 whose parent is 2",
    ),
}


def test_malformed_files_are_refused_in_words_that_name_the_line(filed, tmp_path):
    page = filed(render(trace=story()))
    for name, (lines, message) in MALFORMED.items():
        page.set_input_files("#file", trace_file(tmp_path / "bad.jsonl", lines))
        page.wait_for_function(
            "part => document.getElementById('alert').textContent.includes(part)", arg=message
        )
        assert shown(page) == page_story.TEXT, name  # what was there before stays


def test_a_last_line_cut_short_is_left_out(filed, tmp_path):
    lines = [page_story.header(), *page_story.steps()]
    lines[-1] = json.dumps(lines[-1])[:50]
    page = filed(render())
    page.set_input_files("#file", trace_file(tmp_path / "cut.jsonl", lines, end=""))
    page.wait_for_selector(".answer .t")
    assert shown(page) == page_story.TEXT
    assert "cut short" in page.locator(".lane .alert").inner_text()
