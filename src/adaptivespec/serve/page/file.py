"""The page of one generation as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.serve.page import render

__all__ = ["PageFile"]


class PageFile:
    """Writes a page; a context manager that leaves no empty file when there was nothing to write.

    The place is tried at once, so that one that cannot be written to is known early. A file that is
    there already keeps its content until ``write``.

    Raises ConfigError when the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._made = path, not path.exists()
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror}",
                field="trace_html",
                remedy="Name a file in a directory that exists and may be written to",
            ) from error

    def write(self, trace: Mapping[str, Any]) -> None:
        """Write the page of `trace`, as of ``render``."""
        self._path.write_text(render(trace=trace), encoding="utf-8")
        self._made = False

    def __enter__(self) -> PageFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._made:
            self._path.unlink(missing_ok=True)
