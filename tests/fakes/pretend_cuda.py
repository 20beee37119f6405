"""A GPU that is none: tensors that say they are on cuda:0, computed on the CPU.

An operation that mixes them with tensors of the host fails, as it would there, and so does any way
of looking at them that a device does not have. What a GPU computes otherwise, this does not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from adaptivespec.nn import static
from fakes.tape import Tape

CUDA = torch.device("cuda", 0)
#: Operations that take tensors of both places.
_CROSSING = ("copy_", "_to_copy", "to", "_index_put_impl_", "index", "index_put_")


class Far(Tensor):
    """A tensor on the pretended device. `host` holds its values."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> Far:
        with torch.inference_mode(False):  # such tensors may be written in any mode
            far: Far = Tensor._make_wrapper_subclass(
                cls,
                host.shape,
                strides=host.stride(),
                storage_offset=host.storage_offset(),
                dtype=host.dtype,
                device="meta",  # torch knows it without a driver; what people see is below
            )
        far.host = host
        return far

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    def tolist(self) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            return self.host.tolist()

    def numpy(self, **options: Any) -> Any:
        raise TypeError("can't convert a tensor on cuda:0 to numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Device(TorchDispatchMode):
    """Sees what is made on the device by name, and on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    far = [tensor for tensor in tensors if isinstance(tensor, Far)]
    near = [tensor for tensor in tensors if not isinstance(tensor, Far) and tensor.dim() > 0]
    # A list as index becomes a tensor where torch believes the others to be.
    assert all(tensor.device.type != "meta" for tensor in near), "index by a tensor, not by a list"
    name = func.overloadpacket.__name__
    if far and near and not (name in _CROSSING and (name == "copy_" or isinstance(args[0], Far))):
        raise AssertionError(f"{func} mixes a tensor of the host with one of {CUDA}")
    asked = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    there = asked[0].type == "cuda" if asked else bool(far)
    if name == "copy_":
        there = isinstance(args[0], Far)
    known = {id(tensor.host): tensor for tensor in far}

    def bring(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.host if isinstance(value, Far) else value

    def send(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not there:
            return value.clone() if far else value  # brought to the host
        return known[id(value)] if id(value) in known else Far(value)

    return tree_map(send, func(*tree_map(bring, args), **tree_map(bring, kwargs)))


@contextmanager
def pretend_cuda(tape: Tape | None = None) -> Iterator[Tape]:
    """Within it there is one GPU, whose graphs are those of `tape`."""
    tape = tape or Tape()
    lifted = torch._C._only_lift_cpu_tensors()
    answers: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: "Pretended GPU",
        "is_bf16_supported": lambda including_emulation=True: True,
    }
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with (
            mock.patch.multiple(torch.cuda, **answers),
            mock.patch.object(static, "CudaGraphs", return_value=tape),
            _Device(),
        ):
            yield tape
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
