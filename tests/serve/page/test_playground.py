"""The playground against a scripted server: streams, settings, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes import page_story
from fakes.page_reading import alert, answer, drawn, send
from fakes.page_server import BOOT, Script


def test_an_answer_streams_with_its_kinds_tree_and_figures(served):
    page = served(Script())
    send(page)
    assert answer(page) == page_story.TEXT
    classes = page.locator(".answer .t").evaluate_all("all => all.map((one) => one.classList[1])")
    assert classes == page_story.KINDS
    assert page.locator(".answer .end").count() == 1
    assert page.locator(".node").count() == 4
    assert page.locator("[data-ref=where]").inner_text() == "step 4 of 4"
    assert page.locator("[data-figure=promoted] dd").inner_text() == "1 (12.5 %)"
    assert page.locator("[data-figure=lossless] dd").inner_text() == "no"
    assert page.locator("[data-ref=state]").inner_text() == "ended after 8 tokens"
    page.locator(".answer .promoted").hover()
    told = page.locator("#tip").inner_text()
    assert "log p" in told
    assert ". (7)" in told


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_events_may_be_cut_anywhere(served, newline):
    words = [*page_story.WORDS]
    words[page_story.SKY] = " 天空\U0001f30c"
    script = Script(answers={"": page_story.steps(words)}, piece=5, newline=newline)
    page = served(script)
    send(page)
    assert answer(page) == "The 天空\U0001f30c is blue and bright."
    assert alert(page) == ""


@pytest.mark.parametrize("parts", [("\ufffd", "\ufffd", "!"), (" \ufffd", "\ufffd", ".")])
def test_parts_of_a_character_are_put_together(served, parts):
    words = [*page_story.WORDS]
    words[page_story.SKY], words[page_story.IS], words[page_story.BLUE] = parts
    whole = "The" + " \U0001f30c"[-len(parts[0]) :] + parts[2]
    script = Script(answers={"": page_story.steps(words)}, content=f"{whole} and bright.")
    page = served(script)
    send(page)
    assert answer(page) == f"{whole} and bright."
    assert page.locator(".answer .t").count() == 8


def test_what_is_asked_reaches_the_server(served):
    script = Script()
    page = served(script)
    page.locator("summary").click()
    page.locator("#system").fill("Be brief.")
    page.locator("#max-tokens").fill("33")
    page.locator("#temperature").fill("0.7")
    page.locator("#seed").fill("5")
    page.locator("[data-ref=kappa]").fill("0.35")
    page.locator("[data-ref=policies]").select_option("static")
    assert page.locator("[data-ref=policy]").input_value() == "static"
    page.locator("[data-ref=policy]").fill("static:5,4,16")
    page.locator("#prompt").fill("Why?")
    page.locator("#prompt").press("Control+Enter")
    page.locator("[data-ref=state]", has_text="ended").wait_for()
    assert script.bodies == [
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Why?"},
            ],
            "max_tokens": 33,
            "temperature": 0.7,
            "seed": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_trace": True,
            "rule": "margin",
            "kappa": 0.35,
            "policy": "static:5,4,16",
        }
    ]


def test_kappa_goes_with_rules_that_have_one(served):
    script = Script()
    page = served(script)
    kappa = page.locator("[data-ref=kappa]")
    assert kappa.is_enabled()
    assert page.locator("[data-ref=kappaText]").inner_text() == "0.20"
    for spelled in ("strict", "margin:0.5"):
        page.locator("[data-ref=rule]").fill(spelled)
        assert kappa.is_disabled()
        send(page)
        assert script.bodies[-1]["rule"] == spelled
        assert "kappa" not in script.bodies[-1]


def test_two_settings_side_by_side(served):
    steps, strict = page_story.steps(), page_story.strict_steps()
    script = Script(answers={"": steps, "strict": strict})
    page = served(script)
    page.locator("#compare").check()
    page.locator("#temperature").fill("0.5")
    lanes = page.locator(".lane")
    assert lanes.count() == 2
    lanes.nth(1).locator("[data-ref=rule]").fill("strict")
    send(page)
    assert answer(page, 0) == page_story.TEXT
    assert answer(page, 1) == "The sky is blue."
    assert {body["rule"] for body in script.bodies} == {"margin", "strict"}
    assert len({json.dumps([b["messages"], b["seed"]]) for b in script.bodies}) == 1
    told = page.locator("#versus p").inner_text()
    assert told == (
        "The first 4 tokens are the same; then A has “·and” and B “.”. 2 of 6 positions differ."
    )
    assert page.locator(".answer .differs").all_text_contents() == [" and", "."]
    row = page.locator("#versus tr", has_text="accept length").locator("td").all_text_contents()
    assert row == ["1.75", "1.67", "0.95"]
    losses = page.locator("[data-figure=lossless] dd").all_text_contents()
    assert losses == ["no", "yes"]
    page.locator("#compare").uncheck()
    assert lanes.count() == 1
    assert page.locator("#versus").is_hidden()
    assert page.locator(".answer .differs").count() == 0


def test_both_lanes_stream_at_once(served):
    script = Script(hold_after=3)
    page = served(script)
    page.locator("#compare").check()
    send(page, wait=False)
    page.locator(".answer .t").nth(7).wait_for()
    assert page.locator("#compare").is_disabled()
    script.go.set()
    page.wait_for_selector("#send:visible")
    drawn(page)
    assert answer(page, 0) == answer(page, 1) == page_story.TEXT
    assert page.locator("#versus p").inner_text() == "The same: 8 tokens."


def test_a_finished_answer_is_played_back_and_saved(served):
    page = served(Script())
    send(page)
    page.locator("h1").click()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    drawn(page)
    assert page.locator(".answer .t:not(.future)").count() == 4
    assert page.locator(".node").count() == 7
    with page.expect_download() as saved:
        page.locator("[data-ref=save]").click()
    lines = Path(saved.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [page_story.header(), *page_story.steps()]


def test_looking_back_while_it_streams_is_left_alone(served):
    script = Script(hold_after=4)
    page = served(script)
    send(page, wait=False)
    page.locator(".answer .t").nth(5).wait_for()
    page.locator("[data-ref=back]").click()
    drawn(page)
    assert page.locator("[data-ref=counter]").inner_text() == "1 / 2"
    script.go.set()
    page.wait_for_selector("#send:visible")
    drawn(page)
    assert page.locator("[data-ref=counter]").inner_text() == "1 / 4"
    assert page.locator(".answer .t:not(.future)").count() == 4


def test_a_stream_is_followed_again_from_its_end(served):
    script = Script(hold_after=4)
    page = served(script)
    send(page, wait=False)
    page.locator(".answer .t").nth(5).wait_for()
    page.locator("[data-ref=back]").click()
    page.locator("h1").click()
    page.keyboard.press("End")
    script.go.set()
    page.wait_for_selector("#send:visible")
    drawn(page)
    assert page.locator("[data-ref=counter]").inner_text() == "4 / 4"
    assert page.locator(".answer .future").count() == 0


def test_a_fast_stream_draws_few_trees(served):
    first = page_story.steps()[0]
    steps = [{**first, "step": i, "position": 1 + 3 * i} for i in range(600)]
    page = served(Script(answers={"": steps}))
    page.evaluate(
        """() => {
          window.trees = 0;
          new MutationObserver(() => { window.trees += 1; })
            .observe(document.querySelector(".tree"), { childList: true });
          window.frames = 0;
          const count = () => { window.frames += 1; requestAnimationFrame(count); };
          requestAnimationFrame(count);
        }"""
    )
    send(page)
    assert page.locator(".answer .t").count() == 1801
    trees, frames = page.evaluate("[window.trees, window.frames]")
    assert 1 <= trees <= frames + 1
    assert page.locator("[data-ref=where]").inner_text() == "step 600 of 600"


def test_every_field_has_a_name_and_every_stop_is_seen(served):
    page = served(Script())
    page.locator("#compare").check()
    send(page)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")]
          .filter((one) => one.checkVisibility())
          .filter((one) => !one.labels?.[0]?.textContent.trim() && !one.ariaLabel
            && !one.textContent.trim())
          .map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    page.locator("#prompt").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        outline = page.evaluate(
            """() => {
              const at = document.activeElement;
              if (at === document.body) return "solid";
              const looks = [at, at.querySelector(".c, rect")].filter(Boolean);
              return looks.map((one) => getComputedStyle(one))
                .some((one) => one.outlineStyle !== "none" || one.strokeWidth === "2.5px");
            }"""
        )
        assert outline


def test_the_servers_own_kappa_is_where_the_slider_stands(served):
    page = served(Script(boot={**BOOT, "rule": "margin:kappa=0.35", "kappa": 0.35}))
    assert page.locator("[data-ref=rule]").input_value() == "margin"
    assert page.locator("[data-ref=kappaText]").inner_text() == "0.35"
    assert page.locator("[data-ref=kappa]").is_enabled()
