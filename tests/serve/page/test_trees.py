"""Draft trees as the page draws them."""

from __future__ import annotations

import pytest

from adaptivespec.serve.page import render
from fakes import page_story
from fakes.page_reading import press, story, tip, trace_file


def test_the_tree_shows_what_became_of_every_node(filed):
    page = filed(render(trace=story()))
    press(page, "Home")
    press(page, "ArrowRight")
    assert page.locator(".node").count() == 7  # six drafted or root, and the bonus
    assert page.locator(".node.root").count() == 1
    assert page.locator(".node.exact").count() == 2
    assert page.locator(".node.bonus").count() == 1
    assert page.locator(".node.rejected").count() == 3
    assert page.locator(".node.exact text").all_text_contents() == ["·sky", "·is"]
    press(page, "ArrowRight")
    assert page.locator(".node.promoted").count() == 1
    assert page.locator(".node.promoted circle").count() == 1
    assert "“·and” promoted over “.”" in page.locator("[data-ref=caption]").inner_text()
    page.locator(".node.promoted").hover()
    told = tip(page)
    assert "log q" in told
    assert "rank" in told
    assert "target's own after it" in told
    press(page, "ArrowRight")
    assert page.locator("[data-ref=caption]").inner_text().startswith("Plain step")
    assert page.locator(".node").count() == 2
    press(page, "ArrowRight")
    assert page.locator(".node.bonus").count() == 0  # the answer ended on a draft


def test_nodes_are_reached_by_keyboard(filed):
    page = filed(render(trace=story()))
    press(page, "Home")
    press(page, "ArrowRight")
    page.locator(".node.root").focus()
    press(page, "ArrowRight")
    assert "·sky" in tip(page)
    press(page, "ArrowDown")
    assert "·It" in tip(page)
    press(page, "ArrowLeft")
    assert "root" in tip(page)
    assert page.locator("[data-ref=counter]").inner_text() == "1 / 4"


def test_a_tree_grows_and_is_then_pruned(filed):
    page = filed(render(trace=story()), reduced_motion="no-preference")
    press(page, "Home")
    press(page, "ArrowRight")
    assert page.locator("[data-stage=growing] .node").count() == 7
    page.wait_for_selector("[data-stage=judged]")


def test_without_motion_a_tree_is_there_at_once(filed):
    page = filed(render(trace=story()))
    press(page, "Home")
    press(page, "ArrowRight")
    assert page.locator("[data-stage=judged] .node").count() == 7


SHAPES = {"chain": lambda i: i - 1, "bush": lambda i: 0, "comb": lambda i: (i - 1) // 2}


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_of_any_size_and_shape_are_drawn_without_overlap(filed, tmp_path, shape):
    page = filed(render())
    for size in (1, 2, 16, 64):
        nodes = [(page_story.THE, -1)]
        nodes += [(page_story.SKY, SHAPES[shape](i)) for i in range(1, size)]
        run = [(page_story.IS, "bonus", 1.0, page_story.IS)]
        one = page_story.step(0, 1, nodes, [0], run)
        page.set_input_files("#file", trace_file(tmp_path / "t", [page_story.header(), one]))
        page.locator(".node").nth(size).wait_for()
        places = page.locator(".node rect").evaluate_all(
            "all => all.map((one) => ['x', 'y', 'width', 'height']"
            ".map((name) => one[name].baseVal.value))"
        )
        assert len(places) == size + 1  # the bonus is a node too
        for i, (x, y, width, height) in enumerate(places):
            for left, top, wide, high in places[:i]:
                beside = x >= left + wide or left >= x + width
                assert beside or y >= top + high or top >= y + height


def test_unseen_characters_are_named_in_trees(filed):
    words = [*page_story.WORDS]
    words[page_story.SKY] = "\n\t\u202e\u200b"
    page = filed(render(trace=story(steps=page_story.steps(words))))
    press(page, "Home")
    press(page, "ArrowRight")
    assert page.locator(".node.exact text").first.text_content() == "↵⇥<202E><200B>"
