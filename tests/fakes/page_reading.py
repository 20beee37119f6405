"""What tests ask of an open page, and the traces that they give it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fakes import page_story


def story(**changes: Any) -> dict[str, Any]:
    return {"header": page_story.header(), "steps": page_story.steps(), **changes}


def trace_file(path: Path, lines: list[Any], end: str = "\n") -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return path


def press(page: Any, key: str) -> None:
    """Press a key and let the page draw."""
    page.keyboard.press(key)
    drawn(page)


def drawn(page: Any) -> None:
    """Wait for the frame in which the page draws what it was told."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shown(page: Any) -> str:
    """The answer as far as it is shown, the end token left out."""
    drawn(page)
    return "".join(page.locator(".answer .t:not(.future):not(.end)").all_text_contents())


def kinds(page: Any) -> list[str]:
    classes = page.locator(".answer .t").evaluate_all("all => all.map((one) => one.classList[1])")
    return list(classes)


def tip(page: Any) -> str:
    return str(page.locator("#tip").inner_text())


def figure(page: Any, name: str) -> str:
    drawn(page)
    return str(page.locator(f"[data-figure={name}] dd").first.inner_text())


def send(page: Any, wait: bool = True) -> None:
    """Ask "Why?" and, unless told not to, wait until all answers have ended."""
    page.locator("#prompt").fill("Why?")
    page.locator("#send").click()
    if wait:
        page.wait_for_selector("#send:visible")
        drawn(page)


def answer(page: Any, lane: int = 0) -> str:
    """The answer of a lane, its end token left out."""
    tokens = page.locator(".lane").nth(lane).locator(".answer .t:not(.end)")
    return "".join(tokens.all_text_contents())


def alert(page: Any) -> str:
    """What the first lane has to complain of."""
    return str(page.locator(".lane .alert").first.inner_text())
