"""The page in a real Chromium: every test fails on an error in its console or a foreign request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes.page_server import Script, serving

HERE = "127.0.0.1"
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for a module; its event loop must not outlive it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(names)} is installed")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Opened]:
    """visit(address, **options of the context) -> the page, watched for errors and requests.

    Chromium's own line about a refused request is no fault of the page.
    """
    faults: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            faults.append(message.text)

    def watch(request: Any) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("file", "blob", "data") and where.hostname != HERE:
            faults.append(f"a request to {request.url}")

    def opened(address: str, **options: Any) -> Any:
        settings = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 900}}
        context = browser.new_context(**{**settings, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", note)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", watch)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def served(visit: Opened) -> Iterator[Opened]:
    """served(script) -> the playground of a server that follows the script."""
    servers = []

    def opened(script: Script, **options: Any) -> Any:
        server = serving(script)
        servers.append(server)
        return visit(server.__enter__(), **options)

    yield opened
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def filed(visit: Opened, tmp_path: Path) -> Opened:
    """filed(text of a document) -> the page of that file."""

    def opened(text: str, **options: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return visit(path.as_uri(), **options)

    return opened
