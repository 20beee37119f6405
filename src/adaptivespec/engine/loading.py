"""What an engine is made of: precision, limits, target, head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptivespec.core.errors import ConfigError, ModelNotFoundError
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.target import Target
from adaptivespec.engine.weights import resolve_model
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights

if TYPE_CHECKING:
    from adaptivespec.engine.model.native_target import NativeTarget

BACKENDS = ("torch", "native")
#: Activations of the native engine by the name of a dtype.
NATIVE_MODES = {"auto": "A8", "exact": "A16"}
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
#: Heads that the package ships, by the name of their target.
SHIPPED_HEADS = {"smollm2-135m-instruct": "smollm2-135m-instruct-eagle3"}


@dataclass(frozen=True)
class Backend:
    """What a target runs on: its name, and the precision of drafter and torch target."""

    name: str
    dtype: str
    torch_dtype: torch.dtype

    @classmethod
    def choose(cls, name: str, dtype: str) -> Backend:
        """Check a backend and a dtype together, and that a native engine can be had.

        Raises:
            ConfigError: an unknown name, or a dtype that this backend does not have.
            AdaptiveSpecError: no native engine for this machine; says what to do.
        """
        if name not in BACKENDS:
            raise ConfigError(
                f"unknown backend {name!r}",
                field="backend",
                remedy=f"Use {' or '.join(BACKENDS)}",
            )
        if name == "torch":
            if dtype == "exact":
                raise ConfigError(
                    "'exact' belongs to the native backend",
                    field="dtype",
                    remedy="Use float32, or backend native (--backend native)",
                )
            return cls(name, dtype, precision(dtype))
        if dtype not in NATIVE_MODES:
            raise ConfigError(
                f"the native backend has no {dtype!r}: it keeps the weights as they are published",
                field="dtype",
                remedy="Use auto (8-bit activations) or exact (16-bit), or backend torch",
            )
        from adaptivespec.native.library import load_library

        load_library()
        return cls(name, dtype, precision("auto"))

    def load(
        self, path: Path, config: ModelConfig, limit: int, head: Eagle3Checkpoint | None
    ) -> tuple[Target[Any], Eagle3Drafter | None]:
        """The target and, with a head, its drafter, which runs in torch under either backend."""
        if self.name == "torch":
            network = Llama(load_weights(path, config), config, self.torch_dtype, limit)
            return TorchTarget(network, limit), self._drafter(head, network, config, limit)
        from adaptivespec.engine.model.native_target import NativeTarget
        from adaptivespec.engine.model.native_weights import NativeWeights
        from adaptivespec.native.library import MAX_THREADS, Mode

        mode = Mode[NATIVE_MODES[self.dtype]]
        threads = min(torch.get_num_threads(), MAX_THREADS)
        target = NativeTarget(NativeWeights.open(path, config), config, limit, mode, threads)
        return target, self._drafter(head, target, config, limit)

    def _drafter(
        self,
        head: Eagle3Checkpoint | None,
        lender: Llama | NativeTarget,
        config: ModelConfig,
        limit: int,
    ) -> Eagle3Drafter | None:
        if head is None:
            return None
        borrows = "lm_head.weight" not in head.tensors
        return Eagle3Drafter(
            head,
            lender.embedding,
            config.num_layers,
            limit,
            self.torch_dtype,
            lender.output if borrows else None,
        )


def precision(name: str) -> torch.dtype:
    """The torch type of "auto", "bfloat16" or "float32"."""
    if name == "auto":
        return torch.bfloat16 if _bf16_is_native() else torch.float32
    if name not in DTYPES:
        raise ConfigError(
            f"unknown dtype {name!r}", field="dtype", remedy=f"Use auto, {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def _bf16_is_native() -> bool:
    """Whether oneDNN has bfloat16 kernels for this CPU; without them it is slower than float32."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


def context_limit(asked: int | None, limit: int) -> int:
    """The longest sequence, as asked for within the model's own limit."""
    if asked is None:
        return limit
    if not 2 <= asked <= limit:
        raise ConfigError(f"must lie in [2, {limit}], got {asked}", field="max_model_len")
    return asked


def load_head(
    draft_model: str | Path | None, target_name: str, hub: Mapping[str, Any]
) -> Eagle3Checkpoint | None:
    """The head that was asked for, or the one that ships for this target, if any."""
    if draft_model is not None:
        if Path(draft_model).exists():
            return Eagle3Checkpoint.load(draft_model)
        try:
            found = resolve_model(str(draft_model), **hub)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                error.message,
                field="draft_model",
                remedy="Give the directory of an EAGLE-3 head, or a hub id",
            ) from error
        return Eagle3Checkpoint.load(found.path)
    shipped = SHIPPED_HEADS.get(target_name.lower())
    if shipped is None:
        return None
    return Eagle3Checkpoint.load(str(files("adaptivespec").joinpath("heads", shipped)))
