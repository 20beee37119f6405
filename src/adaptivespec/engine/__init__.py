"""The embedded engine.

`Engine`, `Stream`, `GenerationResult`, `Chunk` and `TokenInfo` are loaded when first asked for, so
that looking at model files does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.engine.engine import Engine
    from adaptivespec.engine.result import Chunk, GenerationResult, TokenInfo
    from adaptivespec.engine.stream import Stream

__all__ = ["Chunk", "Engine", "GenerationResult", "Stream", "TokenInfo"]

_HOMES = {
    "Chunk": "result",
    "Engine": "engine",
    "GenerationResult": "result",
    "Stream": "stream",
    "TokenInfo": "result",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"adaptivespec.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
