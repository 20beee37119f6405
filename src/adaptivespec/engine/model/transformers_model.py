"""Models of every other kind, as the transformers library loads them. No code of theirs is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.engine.devices import CPU
from adaptivespec.engine.weights.families import FAMILIES, UnservedModelError
from adaptivespec.nn.checkpoint import check_tensors

__all__ = ["TransformersConfig", "load_model", "new_cache"]

#: Rotations that change with the length of the text, so that cached keys would have to as well.
_CHANGING_ROPE = ("dynamic", "longrope")


@dataclass(frozen=True)
class TransformersConfig:
    """What is known of a model before it is loaded; ``reason`` says why ours do not run it."""

    model_type: str
    max_position_embeddings: int
    bos_token_id: int | None
    reason: UnservedModelError

    @classmethod
    def read(cls, path: Path, reason: UnservedModelError) -> TransformersConfig:
        """The config of a model directory, as transformers understands it.

        Raises:
            ConfigError: transformers is not installed, does not know such a model without running
                code from its repository, or the model's rotation changes with the text's length.
        """
        try:
            from transformers import AutoConfig
        except ImportError as error:
            raise ConfigError(
                f"{reason.message}, and transformers, which may run it, is not installed",
                field=reason.field,
                remedy=f"pip install transformers. What runs without: {', '.join(FAMILIES)}",
            ) from error
        try:
            config = AutoConfig.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            ).get_text_config(decoder=True)
        except Exception as error:  # each model's config has checks, and errors, of its own
            raise ConfigError(
                f"{reason.message}, and transformers cannot run it either ({_first_line(error)})",
                field=reason.field,
                remedy="Models that bring code of their own are not run; use a model that this "
                "release of transformers has, or a newer release",
            ) from error
        for kind in _rope_types(getattr(config, "rope_parameters", None)):
            if kind in _CHANGING_ROPE:
                raise ConfigError(
                    f"rope_type {kind!r} is not supported: it changes with the text's length",
                    field=reason.field,
                    remedy="Use another model, or one whose rope_type is "
                    "default, linear, llama3 or yarn",
                )
        longest = getattr(config, "max_position_embeddings", None)
        if not isinstance(longest, int):
            raise ConfigError(
                f"{config.model_type}: the config names no max_position_embeddings",
                field=reason.field,
            )
        bos = getattr(config, "bos_token_id", None)
        return cls(config.model_type, longest, bos if isinstance(bos, int) else None, reason)


def new_cache() -> Any:
    """A cache that keeps every row of every layer.

    It is made without the model's config, which would have layers with a window drop their oldest.
    """
    from transformers import DynamicCache

    return DynamicCache()


def load_model(path: Path, dtype: torch.dtype, device: torch.device = CPU) -> Any:
    """The causal language model in `path`, on a device, ready for inference.

    Raises:
        CheckpointError: only pickled weights, unreadable ones, or any tensor missing (transformers
            would make it up), unexpected or mis-shaped, all listed.
        ConfigError: the model generates no text.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation="eager",  # the one that every model has, and that takes any mask
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are listed, and refused below
            output_loading_info=True,
        )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"transformers cannot load the weights ({_first_line(error)})",
            field=str(path),
            remedy="Use a directory with whole safetensors; pickled weights are not read",
        ) from error
    except Exception as error:  # each model's code has checks, and errors, of its own
        raise ConfigError(
            f"transformers cannot load the model ({_first_line(error)})",
            field=str(path),
            remedy="Use a model that generates text, with the config that came with it",
        ) from error
    found = {name: shape for name, shape, _ in info["mismatched_keys"]}
    wanted = {name: shape for name, _, shape in info["mismatched_keys"]}
    found |= dict.fromkeys(sorted(info["unexpected_keys"]), ())
    wanted |= dict.fromkeys(sorted(info["missing_keys"]), ())
    check_tensors(found, wanted, where=str(path))
    return model.to(device).eval().requires_grad_(False)


def _rope_types(parameters: Any) -> Iterator[str]:
    """Those of a config's rope_parameters, also where they differ by layer."""
    if isinstance(parameters, dict):
        for key, value in parameters.items():
            if key in ("rope_type", "type") and isinstance(value, str):
                yield value
            else:
                yield from _rope_types(value)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
