"""What an engine is made of: precision, limits, target, head."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptivespec.core.errors import (
    AdaptiveSpecError,
    ConfigError,
    FallbackWarning,
    ModelNotFoundError,
)
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.eagle3_static import StaticEagle3Drafter
from adaptivespec.engine.devices import CPU, precision
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.static_target import StaticTarget
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.target import Target
from adaptivespec.engine.weights import resolve_model
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.families import UnservedModelError
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

if TYPE_CHECKING:
    from adaptivespec.engine.model.transformers_model import TransformersConfig

BACKENDS = ("torch", "native", "auto")
#: Activations of the native engine by the name of a dtype, and what stands in for it in torch.
NATIVE_MODES = {"auto": "A8", "exact": "A16"}
STAND_INS = {"auto": "auto", "exact": "float32"}
COMPILING = "compiling the native engine for this processor (once, about 30 s)"
#: Heads that the package ships, by the name of their target.
SHIPPED_HEADS = {"smollm2-135m-instruct": "smollm2-135m-instruct-eagle3"}


@dataclass(frozen=True)
class Backend:
    """What a target runs on: its name, the precision of drafter and torch target, the device.

    `optional` says that torch may take the place of a native engine that cannot serve.
    """

    name: str
    dtype: str
    torch_dtype: torch.dtype
    optional: bool = False
    device: torch.device = CPU

    @classmethod
    def choose(
        cls,
        name: str,
        dtype: str,
        progress: ProgressCallback | None = None,
        device: torch.device = CPU,
    ) -> Backend:
        """Check a backend, a dtype and a device together, and that a native engine can be had.

        "auto" is torch on a GPU. Else it is native with a dtype that native has, and torch with any
        other or, after a FallbackWarning, where there is no native engine.

        Args:
            progress: called while the native engine is compiled.

        Raises:
            ConfigError: an unknown name, or a dtype that this backend does not have.
            AdaptiveSpecError: no native engine for this machine; says what to do.
        """
        if name not in BACKENDS:
            raise ConfigError(
                f"unknown backend {name!r}",
                field="backend",
                remedy=f"Use {', '.join(BACKENDS)}",
            )
        on_cpu = device.type == "cpu"
        if name == "native" and not on_cpu:
            raise ConfigError(
                f"the native backend runs on the CPU, not on {device}",
                field="backend",
                remedy="Use backend torch or auto, or device cpu",
            )
        if (name == "torch" or not on_cpu) and dtype == "exact":
            raise ConfigError(
                "'exact' belongs to the native backend",
                field="dtype",
                remedy="Use float32, or backend native (--backend native) on the CPU",
            )
        if name == "native" and dtype not in NATIVE_MODES:
            raise ConfigError(
                f"the native backend has no {dtype!r}: it keeps the weights as they are published",
                field="dtype",
                remedy="Use auto (8-bit activations) or exact (16-bit), or backend torch",
            )
        if name == "torch" or not on_cpu or dtype not in NATIVE_MODES:
            return cls("torch", dtype, precision(dtype, device), device=device)
        native = cls("native", dtype, precision("auto"), optional=name == "auto")
        try:
            _prepare_native(progress or silent)
        except AdaptiveSpecError as error:
            return native._without_native(error)
        return native

    def for_model(self, config: ModelConfig | TransformersConfig, limit: int) -> Backend:
        """This backend, or after a FallbackWarning what serves in its place: torch where native is
        optional and does not serve such a model, transformers where neither does.

        Raises:
            ConfigError: native was asked for and does not serve it, or texts of `limit` tokens
                outgrow the model's sliding window.
        """
        if not isinstance(config, ModelConfig):
            return self._without_ours(config)
        config.require_whole_context(limit)
        if self.optional:
            from adaptivespec.engine.model.native_model import native_config

            try:
                native_config(config, limit)
            except ConfigError as error:
                return self._without_native(error)
        return self

    def _without_native(self, error: AdaptiveSpecError) -> Backend:
        """Torch in place of native; raises `error` where that was not left open."""
        if not self.optional:
            raise error
        remedy = "" if error.remedy is None else f". {error.remedy}"
        warnings.warn(
            f"the torch backend serves, which is slower: {error.message}{remedy}",
            FallbackWarning,
            stacklevel=4,  # who called Engine.from_pretrained
        )
        dtype = STAND_INS[self.dtype]
        return Backend("torch", dtype, precision(dtype))

    def _without_ours(self, config: TransformersConfig) -> Backend:
        """Transformers in place of ours; raises where native was asked for by name."""
        if self.name == "native" and not self.optional:
            raise ConfigError(
                f"native does not serve this model: {config.reason.message}",
                field="backend",
                remedy="Use backend torch or auto, where transformers serves it",
            )
        warnings.warn(
            f"transformers serves, which is slower: {config.reason.message}",
            FallbackWarning,
            stacklevel=4,  # who called Engine.from_pretrained
        )
        dtype = STAND_INS.get(self.dtype, self.dtype)
        return Backend("transformers", dtype, precision(dtype, self.device), device=self.device)

    def load(
        self,
        path: Path,
        config: ModelConfig | TransformersConfig,
        limit: int,
        head: Eagle3Checkpoint | None,
    ) -> tuple[Target[Any], Drafter[Any] | None]:
        """The target and, with a head, its drafter."""
        target: Target[Any]
        if not isinstance(config, ModelConfig):
            from adaptivespec.engine.model.transformers_model import load_model
            from adaptivespec.engine.model.transformers_target import TransformersTarget

            target = TransformersTarget(load_model(path, self.torch_dtype, self.device), limit)
        elif self.name == "torch":
            weights = load_weights(path, config, dtype=None)
            model = Llama(weights, config, self.torch_dtype, limit, self.device)
            made = TorchTarget if self.device.type == "cpu" else StaticTarget
            target = made(model, limit)
        else:
            from adaptivespec.engine.model.native_target import NativeTarget
            from adaptivespec.engine.model.native_weights import NativeWeights
            from adaptivespec.native.library import Mode

            mode = Mode[NATIVE_MODES[self.dtype]]
            target = NativeTarget(NativeWeights.open(path, config), config, limit, mode, "auto")
        return target, None if head is None else drafter_for(target, head)


def drafter_for(target: Target[Any], head: Eagle3Checkpoint) -> Drafter[Any]:
    """The drafter of `head` beside a target of any backend.

    A head of sizes that the native engine does not run is run in torch.
    """
    limits = target.limits
    lender: Any = target
    if isinstance(target, TorchTarget):
        lender, dtype = target.model, target.dtype
    elif target.backend == "transformers":
        dtype = target.dtype
    else:
        from adaptivespec.draft.eagle3_native import NativeEagle3Drafter, serves
        from adaptivespec.native.library import Mode

        if serves(head.config):
            coarse = lender.mode is Mode.A8  # what it loses in drafts it more than gains in time
            return NativeEagle3Drafter(
                head,
                lender.model,
                limits.num_layers,
                limits.max_model_len,
                lender.mode,
                lender.threads.now,
                coarse,
            )
        dtype = precision("auto")
    borrows = "lm_head.weight" not in head.tensors
    made = Eagle3Drafter if target.device.type == "cpu" else StaticEagle3Drafter
    return made(
        head,
        lender.embedding,
        limits.num_layers,
        limits.max_model_len,
        dtype,
        lender.output if borrows else None,
    )


def _prepare_native(progress: ProgressCallback) -> None:
    """Have the native engine's library, and load it."""
    from adaptivespec.native.build import library_path
    from adaptivespec.native.library import load_library

    library_path(progress=lambda done, total: progress(ProgressEvent(COMPILING, done, total)))
    load_library()


def read_config(path: Path) -> ModelConfig | TransformersConfig:
    """The config of a model directory or GGUF file, of our own families or of transformers'.

    Raises:
        ConfigError, CheckpointError: as `ModelConfig.from_dir` and `TransformersConfig.read`.
    """
    try:
        return ModelConfig.from_dir(path)
    except UnservedModelError as error:
        if path.suffix == ".gguf":
            raise
        from adaptivespec.engine.model.transformers_model import TransformersConfig

        return TransformersConfig.read(path, error)


def context_limit(asked: int | None, limit: int) -> int:
    """The longest sequence, as asked for within the model's own limit."""
    if asked is None:
        return limit
    if not 2 <= asked <= limit:
        raise ConfigError(f"must lie in [2, {limit}], got {asked}", field="max_model_len")
    return asked


def find_head(
    draft_model: str | Path | None, target_name: str, hub: Mapping[str, Any]
) -> Path | None:
    """Where the head lies that was asked for, or the one that ships for this target, if any."""
    if draft_model is None:
        shipped = SHIPPED_HEADS.get(target_name.lower())
        return None if shipped is None else Path(str(files("adaptivespec") / "heads" / shipped))
    if Path(draft_model).exists():
        return Path(draft_model).absolute()
    try:
        return resolve_model(str(draft_model), **hub).path
    except ModelNotFoundError as error:
        raise ModelNotFoundError(
            error.message,
            field="draft_model",
            remedy="Give the directory of an EAGLE-3 head, or a hub id",
        ) from error


def load_head(
    draft_model: str | Path | None, target_name: str, hub: Mapping[str, Any]
) -> Eagle3Checkpoint | None:
    """The head that was asked for, or the one that ships for this target, if any."""
    path = find_head(draft_model, target_name, hub)
    return None if path is None else Eagle3Checkpoint.load(path)
