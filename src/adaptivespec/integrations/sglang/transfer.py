"""Values on their way from the device to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class HostCopy:
    """A copy that the device makes while the host goes on; complete after ``done``.

    Attributes:
        values: on the host.
        done: an event of the device, None on a CPU.
    """

    values: Tensor
    done: Any | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> HostCopy:
        """Start copying; the tensor may change afterwards."""
        if tensor.device.type == "cpu":
            return cls(tensor.clone())
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        done = torch.get_device_module(tensor.device).Event()
        done.record()
        return cls(host, done)

    def read(self) -> list[Any]:
        """The values as lists, waiting for them if need be."""
        if self.done is not None:
            self.done.synchronize()
        values: list[Any] = self.values.tolist()
        return values
