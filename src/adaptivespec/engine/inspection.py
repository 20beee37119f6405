"""What a checkpoint is, from its config and the headers of its weights alone.

Reports are dictionaries of JSON values: `describe` for a target or a head, `fit` for both together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import AdaptiveSpecError, CheckpointError, ConfigError
from adaptivespec.draft.dialects import dialect_of
from adaptivespec.draft.eagle3_config import FLAGS, Eagle3Config
from adaptivespec.draft.heads import VOCABULARY_MAPS, WEIGHTS_FILE, Head, HeadFiles
from adaptivespec.draft.proposal import margin_of, read_proposal
from adaptivespec.engine.weights.chat_template import find_template
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.families import UnservedModelError
from adaptivespec.engine.weights.jsonfile import read_json
from adaptivespec.nn.checkpoint import check_tensors, open_safetensors

__all__ = ["Sizes", "describe", "fit", "is_head"]

HARMLESS = ("rotary_emb.inv_freq", "rope_freqs.weight")


@dataclass(frozen=True)
class Sizes:
    """What a head must know of a target. `name` is what the user called it."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_position_embeddings: int

    @classmethod
    def of(cls, path: Path, name: str) -> Sizes:
        """The sizes of a model directory or a GGUF file, whether or not it is one we run.

        Raises:
            CheckpointError, ConfigError: a config is unreadable or lacks a size.
        """
        try:
            config = ModelConfig.from_dir(path)
        except UnservedModelError:
            data = read_json(path / "config.json")
            text = data.get("text_config")
            data = text if isinstance(text, dict) else data
            keys = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings")
            sizes = [data.get(key) for key in keys]
            if not all(type(size) is int and size > 0 for size in sizes):
                raise CheckpointError(
                    f"one of {', '.join(keys)} is missing", field=str(path / "config.json")
                ) from None
            return cls(name, *sizes)  # type: ignore[arg-type]
        return cls(
            name,
            config.vocab_size,
            config.hidden_size,
            config.num_layers,
            config.max_position_embeddings,
        )


def is_head(path: Path) -> bool:
    """Whether `path` holds a draft head rather than a model that answers."""
    if path.suffix in (".safetensors", ".bin"):
        return True
    if not path.is_dir():
        return False
    data = read_json(path / "config.json")
    try:
        dialect = dialect_of(data, str(path))
    except CheckpointError:
        return "speculators_model_type" in data
    if dialect.name != "official" or "draft_vocab_size" in data:
        return True
    weights = path / WEIGHTS_FILE
    if not weights.is_file():
        return False
    with open_safetensors(weights) as file:  # the architecture is that of a Llama, too
        return "fc.weight" in file.names


def describe(path: Path, name: str, allow_pickles: bool = False) -> dict[str, Any]:
    """What lies at `path`: a head, or a target.

    Args:
        path: a directory, a GGUF file, or a head's weights file.
        name: to show.
        allow_pickles: look into a head's `.bin`, tensors alone.

    Raises:
        AdaptiveSpecError: neither, or unreadable.
    """
    return _head(path, name, allow_pickles) if is_head(path) else _target(path, name)


def fit(config: Eagle3Config, target: Sizes) -> dict[str, Any]:
    """Whether a head fits a target: `fits`, every `mismatches`, and `notes` on lesser matters."""
    mismatches = config.mismatches(target.vocab_size, target.hidden_size, target.num_layers)
    notes = []
    served = config.max_position_embeddings
    if served is not None and served < target.max_position_embeddings:
        notes.append(
            f"SGLang refuses it: the config says {served} positions, the target has "
            f"{target.max_position_embeddings}; this engine needs no such number"
        )
    if config.target_name and _last(config.target_name) != _last(target.name):
        notes.append(f"it was made for {config.target_name}")
    taps = None if mismatches else list(config.taps_for(target.num_layers))
    return {
        "target": target.name,
        "fits": not mismatches,
        "mismatches": mismatches,
        "taps": taps,
        "notes": notes,
    }


def _head(path: Path, name: str, allow_pickles: bool) -> dict[str, Any]:
    files = HeadFiles.find(path)
    data = files.read_config()
    dialect = dialect_of(data, str(files.config))
    config = dialect.read(data, str(files.config))
    report: dict[str, Any] = {
        "kind": "head",
        "name": name,
        "dialect": dialect.name,
        "dialect_title": dialect.title,
        "weights": files.weights.name,
        "pickled": files.pickled,
        **_head_sizes(config),
        "flags": {flag: getattr(config, flag) for flag in FLAGS},
        "target_wanted": {
            "name": config.target_name,
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
        },
        "backends": _head_backends(config),
        "proposal": _proposal(data, str(files.config), config.vocab_size),
        "problems": [],
    }
    if files.pickled and not allow_pickles:
        return report | {"tensors_read": False}
    head = Head.open(path, allow_pickles)
    report |= {
        "tensors_read": True,
        "dtypes": list(head.dtypes),
        "parameters": sum(
            math.prod(shape) for name, shape in head.shapes.items() if name not in VOCABULARY_MAPS
        ),
        "missing": head.missing,
        "unexpected": head.unexpected,
        "borrowed": head.borrowed,
    }
    try:
        head.check()
    except CheckpointError as error:
        report["problems"] = [error.message]
    return report


def _head_sizes(config: Eagle3Config) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if config.rope_scaling is None else dict(config.rope_scaling),
        "tap_layers": None if config.tap_layers is None else list(config.tap_layers),
    }


def _head_backends(config: Eagle3Config) -> dict[str, str]:
    """What runs the head; a reason where it does not."""
    from adaptivespec.draft.eagle3_native import serves

    reason = "norm flags" if config.flags() else "these sizes"
    return {"torch": "yes", "native": "yes" if serves(config) else f"no: {reason}"}


def _proposal(data: Mapping[str, Any], where: str, vocab_size: int) -> dict[str, Any] | None:
    proposal = read_proposal(data, where)
    if proposal is None:
        return None
    mapping = margin_of(proposal, vocab_size)
    return proposal.to_dict() | {
        "rule": mapping.rule,
        "policy": mapping.policy,
        "lost": list(mapping.lost),
    }


def _target(path: Path, name: str) -> dict[str, Any]:
    sizes = Sizes.of(path, name)
    report: dict[str, Any] = {
        "kind": "target",
        "name": name,
        "num_layers": sizes.num_layers,
        "hidden_size": sizes.hidden_size,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.max_position_embeddings,
    }
    shapes, report["format"], report["dtypes"] = _tensors(path)
    report["parameters"] = sum(math.prod(shape) for shape in shapes.values())
    report |= _texts(path)
    report["problems"] = []
    try:
        config = ModelConfig.from_dir(path)
    except UnservedModelError as error:
        family = read_json(path / "config.json").get("model_type")
        report["family"] = family if isinstance(family, str) else None
        refused = f"no: {error.message}"
        report["backends"] = {
            "torch": refused,
            "native": refused,
            "transformers": "yes" if find_spec("transformers") else "once it is installed",
        }
        return report
    report |= {
        "family": config.model_type,
        "intermediate_size": config.intermediate_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling,
        "sliding_window": config.sliding_window,
        "tie_word_embeddings": config.tie_word_embeddings,
        "eos_token_ids": list(config.eos_token_ids),
        "backends": _target_backends(config),
    }
    optional = {"lm_head.weight"} if config.tie_word_embeddings else set()
    try:
        check_tensors(
            shapes, config.tensor_shapes(), optional, str(path), ignored_suffixes=HARMLESS
        )
    except CheckpointError as error:
        report["problems"] = [error.message]
    return report


def _target_backends(config: ModelConfig) -> dict[str, str]:
    from adaptivespec.engine.model.native_model import native_config

    try:
        native_config(config, config.max_position_embeddings)
    except ConfigError as error:
        return {"torch": "yes", "native": f"no: {error.message}"}
    return {"torch": "yes", "native": "yes"}


def _tensors(path: Path) -> tuple[dict[str, tuple[int, ...]], str, list[str]]:
    """Shapes by name, the format, and the types, most frequent first."""
    shapes: dict[str, tuple[int, ...]] = {}
    kinds: list[str] = []
    if path.suffix == ".gguf":
        from adaptivespec.engine.weights.gguf_file import canonical_name
        from adaptivespec.native.weights import gguf_tensors

        for name, tensor in gguf_tensors(path).items():
            shapes[canonical_name(name)] = tuple(tensor.shape)
            kinds.append(tensor.kind)
        return shapes, "GGUF", _frequent(kinds)
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise CheckpointError(
            "no weights: no .safetensors file",
            field=str(path),
            remedy="Download the model again, or pass a GGUF file",
        )
    for weights in files:
        with open_safetensors(weights) as file:
            shapes |= file.shapes()
            kinds += file.dtypes().values()
    count = f", {len(files)} files" if len(files) > 1 else ""
    return shapes, f"safetensors{count}", _frequent(kinds)


def _frequent(kinds: Iterable[str]) -> list[str]:
    return [kind for kind, _ in Counter(kinds).most_common()]


def _texts(path: Path) -> dict[str, Any]:
    """Whether a tokenizer and a chat template are there."""
    if path.suffix == ".gguf":
        from adaptivespec.engine.weights.gguf_file import GgufFile

        file = GgufFile.open(path)
        tokenizer = file.get("tokenizer.ggml.model")
        return {
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "chat_template": file.get("tokenizer.chat_template") is not None,
        }
    config = read_json(path / "tokenizer_config.json", missing_ok=True)
    try:
        template = find_template(path, config) is not None
    except AdaptiveSpecError:
        template = False
    present = (path / "tokenizer.json").is_file()
    return {"tokenizer": "tokenizer.json" if present else None, "chat_template": template}


def _last(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1].lower()
