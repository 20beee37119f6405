"""A stand-in for CUDA graphs on the CPU: it does the recorded operations again, on the same memory.

As with a graph, nothing is recorded but operations and where their operands lie: numbers that were
the host's are repeated as they were, and the host may neither wait for a result nor bring data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

#: What makes the host wait, or takes its data: neither can be part of a graph.
_NOT_IN_A_GRAPH = (
    "item",
    "_local_scalar_dense",
    "equal",
    "nonzero",
    "masked_select",
    "lift_fresh",
    "scalar_tensor",
    "unique",
)


class Tape:
    """Captures by recording; `recorded` counts operations, `waits` how often somebody waited."""

    def __init__(self) -> None:
        self.captures = self.replays = self.waits = 0

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        work()  # as kernels have to be loaded first
        recorder = _Recorder()
        with recorder:
            work()
        self.captures += 1
        steps = recorder.steps
        for _, _, _, made in steps:
            for tensor in made:
                tensor.fill_(_rubbish(tensor.dtype))

        steps = [tree_map(_on_host, step) for step in steps]

        def replay() -> None:
            self.replays += 1
            with _disable_current_modes():
                for function, arguments, options, made in steps:
                    again = filter(is_tensor, tree_leaves(function(*arguments, **options)))
                    for old, new in zip(made, again, strict=False):
                        old.copy_(new)

        return replay

    def wait(self) -> None:
        self.waits += 1


class _Recorder(TorchDispatchMode):
    """Operations with their operands, and the tensors that each made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        by_mask = name.strip("_").startswith("index") and any(
            is_tensor(t) and t.dtype == torch.bool for t in tree_leaves(args[1])
        )
        # `where` copies a number to the device; others hand it to the kernel.
        copied = name == "where" and "Scalar" in func._overloadname
        if by_mask or copied or name in _NOT_IN_A_GRAPH:
            raise AssertionError(f"{func} cannot be captured")
        result = func(*args, **kwargs)
        given = {_memory(t) for t in tree_leaves((args, kwargs)) if is_tensor(t)}
        results = [t for t in tree_leaves(result) if is_tensor(t)]
        made = [t for t in results if _memory(t) not in given]
        if made or func._schema.is_mutable:  # a view stays what it is
            self.steps.append((func, args, kwargs, made))
        return result


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _on_host(value: object) -> object:
    """What computes the same without the pretence of a device: it is slow."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return getattr(value, "host", value)


def _memory(tensor: Tensor) -> int:
    host: Tensor = getattr(tensor, "host", tensor)
    packed = host.layout != torch.strided  # a weight, of which there are no views
    return id(host) if packed else host.untyped_storage()._cdata


def _rubbish(dtype: torch.dtype) -> Any:
    """What a result holds until the first replay."""
    if dtype.is_floating_point:
        return float("nan")
    return True if dtype == torch.bool else 0
