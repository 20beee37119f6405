"""The C interface of the engine (csrc/engine.h) in ctypes, and the library behind it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.native.build import library_path

__all__ = ["Library", "NativeError", "RawConfig", "RawPass", "RawRows", "load_library"]

ABI_VERSION = 3


class NativeError(AdaptiveSpecError):
    """The compiled engine refused a call; the message is its own."""


class RawConfig(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("layers", "hidden", "ffn", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_dim", "vocab", "max_len")),
        ("rms_eps", c_float),
        ("flags", c_int32),
    ]


class RawRows(Structure):
    _fields_ = [
        ("cache", c_void_p),
        *((name, c_int32) for name in ("rows", "asked_count")),
        *((name, c_void_p) for name in ("tokens", "parents", "positions", "asked")),
    ]


class RawPass(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("sequence_count", "mode", "threads", "tap_count")),
        *((name, c_void_p) for name in ("sequences", "tap_layers", "taps", "logits", "hidden")),
        ("stalled", c_void_p),
    ]


_SIGNATURES: dict[str, list[Any]] = {
    "as_model_new": [POINTER(RawConfig), POINTER(c_void_p)],
    "as_model_free": [c_void_p],
    "as_model_rope": [c_void_p, c_void_p, c_void_p],
    "as_model_weight": [c_void_p, *[c_int32] * 3, c_void_p, *[c_int32] * 2, c_void_p],
    "as_model_norm": [c_void_p, c_int32, c_int32, c_void_p, c_int32],
    "as_model_bias": [c_void_p, c_int32, c_int32, c_void_p, c_int32],
    "as_model_ready": [c_void_p],
    "as_model_bytes": [c_void_p, POINTER(c_int64)],
    "as_cache_new": [c_void_p, c_int32, POINTER(c_void_p)],
    "as_cache_free": [c_void_p],
    "as_cache_length": [c_void_p, POINTER(c_int32)],
    "as_cache_bytes": [c_void_p, POINTER(c_int64)],
    "as_cache_commit": [c_void_p, c_void_p, c_int32],
    "as_cache_copy": [c_void_p, c_void_p, c_int32],
    "as_cache_truncate": [c_void_p, c_int32],
    "as_forward": [c_void_p, POINTER(RawPass)],
}


class Library:
    """A loaded shared library; `call` raises what the library reports."""

    def __init__(self, path: str) -> None:
        self._declared: set[str] = set()
        try:
            self._dll = ctypes.CDLL(path)
            self._dll.as_abi_version.restype = c_int32
            version = int(self._dll.as_abi_version())
            self._dll.as_error.restype = self._dll.as_isa.restype = c_char_p
            self.declare(_SIGNATURES)
        except (OSError, AttributeError) as error:
            raise NativeError(
                f"{path} cannot be loaded ({error})",
                field="backend",
                remedy="Delete that file, so that it is compiled again, or use backend torch",
            ) from error
        if version != ABI_VERSION:
            raise NativeError(
                f"{path} speaks version {version} of the interface, this package {ABI_VERSION}",
                field="backend",
                remedy="Delete that file, so that it is compiled again",
            )

    def declare(self, signatures: Mapping[str, Sequence[Any]]) -> None:
        """Argument types of functions that return a status."""
        for name, arguments in signatures.items():
            if name in self._declared:
                continue
            self._declared.add(name)
            function = getattr(self._dll, name)
            function.argtypes, function.restype = arguments, c_int32

    @property
    def isa(self) -> str:
        """The instruction set it was compiled for."""
        return str(self._dll.as_isa().decode())

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self._dll, name)(*arguments):
            raise NativeError(self._dll.as_error().decode("utf-8", "replace"), field="backend")

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """The handle that a constructor writes to its last argument."""
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def freer(self, name: str) -> Callable[[c_void_p], object]:
        free: Callable[[c_void_p], object] = getattr(self._dll, name)
        return free


@cache
def load_library() -> Library:
    """The library for this processor, compiled where that was not done yet.

    Raises:
        NativeError: it cannot be loaded; what `build.library_path` raises when it cannot be made.
    """
    return Library(str(library_path()))
