"""Where a model runs, and in what precision there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from adaptivespec.core.errors import ConfigError, DeviceMemoryError

CPU = torch.device("cpu")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def find_device(name: str) -> torch.device:
    """The device "cpu", "cuda" or "cuda:N", which is there to be used.

    Raises:
        ConfigError: another name, or no such device here; says what to do.
    """
    if name == "cpu":
        return CPU
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(
            f"unknown device {name!r}", field="device", remedy="Use cpu, cuda or cuda:N"
        )
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        raise ConfigError(
            "torch finds no GPU" if built else f"torch {torch.__version__} is built without CUDA",
            field="device",
            remedy="Check that nvidia-smi lists the GPU and that its driver fits "
            f"CUDA {torch.version.cuda}, or use cpu"
            if built
            else "Install a build of torch with CUDA (docs/cuda.md), or use cpu",
        )
    index = torch.cuda.current_device() if match[1] is None else int(match[1])
    if index >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no {name}: GPUs here: {torch.cuda.device_count()}",
            field="device",
            remedy=f"Use cuda:0 to cuda:{torch.cuda.device_count() - 1}",
        )
    return torch.device("cuda", index)


def describe(device: torch.device) -> str:
    """The device for people: the name of a GPU where it is one."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@contextmanager
def room_on(device: torch.device) -> Iterator[None]:
    """Within it, memory that a GPU does not have is a DeviceMemoryError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).removeprefix("CUDA out of memory. ").partition(". ")[0]
        raise DeviceMemoryError(
            f"{describe(device)} has too little memory ({reason})",
            field="device",
            remedy="Use a smaller model, a shorter max_model_len (--max-model-len), another GPU or "
            "cpu",
        ) from error


def precision(name: str, device: torch.device = CPU) -> torch.dtype:
    """The torch type of "auto", "bfloat16" or "float32" on a device.

    Raises:
        ConfigError: any other name.
    """
    if name == "auto":
        return torch.bfloat16 if _is_quick_in_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise ConfigError(
            f"unknown dtype {name!r}", field="dtype", remedy=f"Use auto, {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def _is_quick_in_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 has kernels of its own there; without them it is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
