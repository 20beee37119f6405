"""An empty torchvision: SGLang imports it for images, which the tests do not serve.

PyPI's torchvision needs torch's CUDA build. Here every name exists and none can be used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__version__ = "0.0.0+empty"


class _Absent(type):
    """A class that can be named, also its attributes (enumerations), but not called."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(f"torchvision's {cls.__name__} is not here: this one is empty")


def _absent(name: str) -> _Absent:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (), {})


_MODULES = (
    "io",
    "transforms",
    "transforms.functional",
    "transforms.v2",
    "transforms.v2.functional",
)
for _name in _MODULES:
    _module = sys.modules[f"torchvision.{_name}"] = ModuleType(f"torchvision.{_name}")
    _module.__dict__.update(__getattr__=_absent, __path__=[])
    _parent, _, _child = _module.__name__.rpartition(".")
    setattr(sys.modules[_parent], _child, _module)
