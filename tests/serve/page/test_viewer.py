"""The page as a file: what it shows of a trace, how it is played, and how it looks."""

from __future__ import annotations

import pytest

from adaptivespec.serve.page import render
from fakes import page_story
from fakes.page_reading import figure, kinds, press, shown, story, tip


def test_the_answer_is_coloured_by_kind_and_not_by_colour_alone(filed):
    page = filed(render(trace=story()))
    assert shown(page) == page_story.TEXT
    assert kinds(page) == page_story.KINDS
    looks = {
        kind: page.locator(f".answer .{kind} > .c").first.evaluate(
            "one => ['backgroundColor', 'borderBottomStyle', 'borderBottomColor']"
            ".map((name) => getComputedStyle(one)[name])"
        )
        for kind in ("exact", "promoted", "bonus")
    }
    assert len({look[0] for look in looks.values()}) == 3
    assert looks["promoted"][1] == "solid"
    assert looks["bonus"][1] == "dotted"
    assert looks["exact"][2] == "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(filed, scheme):
    page = filed(render(trace=story()), color_scheme=scheme)
    lowest = page.evaluate(
        """() => {
          const levels = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
          });
          const light = (color) => {
            const [red, green, blue] = levels(color);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
          };
          const behind = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const color = getComputedStyle(at).backgroundColor;
              if (!/, 0\\)$/.test(color)) return color;
            }
            return "rgb(255, 255, 255)";
          };
          let lowest = 21;
          for (const node of document.querySelectorAll("body *:not(option, svg, svg *)")) {
            const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
            if (!own || node.disabled || !node.checkVisibility()) continue;
            const [dark, bright] = [getComputedStyle(node).color, behind(node)]
              .map(light).sort((a, b) => a - b);
            lowest = Math.min(lowest, (bright + 0.05) / (dark + 0.05));
          }
          return lowest;
        }"""
    )
    assert lowest >= 4.5


def test_a_token_says_margin_regret_and_what_strict_would_have_said(filed):
    page = filed(render(trace=story()))
    page.locator(".answer .promoted").hover()
    told = tip(page)
    assert "promoted: accepted in place of the target's choice" in told
    assert "·and (10)" in told
    assert "0.250" in told
    assert "1.39 nats" in told
    assert ". (7)" in told
    page.locator(".answer .exact").first.hover()
    assert "the same" in tip(page)
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()


def test_tokens_are_reached_by_keyboard(filed):
    page = filed(render(trace=story()))
    page.locator(".answer .t").first.focus()
    assert "The first token" in tip(page)
    for _ in range(4):
        press(page, "ArrowRight")
    assert "promoted" in tip(page)
    assert page.locator("[data-ref=counter]").inner_text() == "4 / 4"
    press(page, "Enter")
    assert page.locator("[data-ref=where]").inner_text() == "step 2 of 4"
    assert page.locator(".answer .now").all_text_contents() == [" and", " bright"]
    press(page, "Escape")
    assert page.locator("#tip").is_hidden()


def test_keys_play_and_step(filed):
    page = filed(render(trace=story()))
    press(page, "Home")
    assert shown(page) == "The"
    press(page, "ArrowRight")
    assert shown(page) == "The sky is blue"
    press(page, "ArrowRight")
    assert shown(page) == "The sky is blue and bright"
    press(page, "ArrowLeft")
    assert shown(page) == "The sky is blue"
    page.locator("[data-ref=speed]").select_option("10")
    page.locator("h1").click()
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('[data-ref=counter]').textContent === '4 / 4'")
    page.wait_for_function("document.querySelector('[data-ref=play]').textContent === 'Play'")
    assert shown(page) == page_story.TEXT


def test_buttons_and_the_slider_do_the_same(filed):
    page = filed(render(trace=story()))
    back, forward = page.locator("[data-ref=back]"), page.locator("[data-ref=forward]")
    assert forward.is_disabled()
    back.click()
    assert shown(page) == "The sky is blue and bright."
    assert page.locator(".answer .end.future").count() == 1
    page.locator("[data-ref=scrub]").fill("0")
    assert shown(page) == "The"
    assert back.is_disabled()
    page.locator("[data-ref=scrub]").press("ArrowRight")
    assert shown(page) == "The sky is blue"
    page.locator("[data-ref=speed]").select_option("1")
    page.locator("[data-ref=play]").click()
    assert page.locator("[data-ref=play]").inner_text() == "Pause"
    page.locator("[data-ref=play]").press("Space")
    assert page.locator("[data-ref=play]").inner_text() == "Play"


def test_figures_follow_the_steps(filed):
    page = filed(render(trace=story()))
    assert figure(page, "rate") == "175.0"  # 7 tokens in 4 steps of 10 ms
    assert figure(page, "length") == "1.75"
    assert figure(page, "promoted") == "1 (12.5 %)"
    assert figure(page, "regret") == "1.39 nats"
    assert figure(page, "nodes") == "3.5"
    assert figure(page, "time") == "20 · 60 · 20 %"
    assert figure(page, "lossless") == "no"
    assert figure(page, "triple") == "3, 2, 4"
    press(page, "Home")
    press(page, "ArrowRight")
    assert figure(page, "length") == "3.00"
    assert figure(page, "promoted") == "0 (0.0 %)"
    assert figure(page, "triple") == "3, 2, 6"


def test_an_answer_of_one_token_took_no_step(filed):
    page = filed(render(trace=story(steps=[], text="Yes", prompt="Is it?")))
    assert shown(page) == "Yes"
    assert page.locator(".source q").inner_text() == "Is it?"
    assert page.locator("[data-ref=timeline]").is_hidden()
    page.locator(".answer .t").hover()
    assert "first token" in tip(page)


def test_the_theme_follows_the_system_and_the_menu(filed):
    page = filed(render(trace=story()), color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.locator("#theme").select_option("light")
    light = page.evaluate(paper)
    assert light != dark
    page.emulate_media(color_scheme="light")
    page.locator("#theme").select_option("auto")
    assert page.evaluate(paper) == light
    page.locator("#theme").select_option("dark")
    assert page.evaluate(paper) == dark


def test_a_narrow_screen_needs_no_sideways_scrolling(filed):
    page = filed(render(trace=story()), viewport={"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_trace_plays(filed):
    first = page_story.steps()[0]
    steps = [{**first, "step": i, "position": 1 + 3 * i} for i in range(1500)]
    page = filed(render(trace=story(steps=steps)))
    assert page.locator(".answer .t").count() == 4501
    press(page, "Home")
    assert shown(page) == "The"
    press(page, "End")
    assert page.locator(".answer .future").count() == 0
    assert page.locator(".chart path").count() == 5
