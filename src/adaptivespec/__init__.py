"""Controlled lossy speculative decoding: margin verification and adaptive draft trees.

`Engine`, and `transformers` for `model.generate(..., custom_generate=transformers.generate)`, are
loaded on first use, so that `import adaptivespec` is quick.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.engine import Engine as Engine

__version__ = "0.1.0"
__all__ = ["Engine", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from adaptivespec.engine import Engine

        return Engine
    if name == "transformers":
        from importlib import import_module

        return import_module("adaptivespec.integrations.transformers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
