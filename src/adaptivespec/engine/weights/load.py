"""Weights into memory, under Hugging Face names, whatever file they come from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.gguf_file import GgufFile
from adaptivespec.engine.weights.jsonfile import read_json
from adaptivespec.nn.checkpoint import SafetensorsFile, check_tensors, open_safetensors

if TYPE_CHECKING:
    from adaptivespec.engine.weights.resolve import ModelFiles

__all__ = ["load_weights"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_HARMLESS = ("rotary_emb.inv_freq", "rope_freqs.weight")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def load_weights(
    files: ModelFiles | str | Path, config: ModelConfig, dtype: torch.dtype | None = torch.float32
) -> dict[str, torch.Tensor]:
    """All weights of a model, on the CPU, in ``dtype``.

    Args:
        files: a model directory (safetensors, single or sharded) or a GGUF file.
        config: its shape; decides which tensors must be there (:meth:`ModelConfig.tensor_shapes`).
        dtype: the precision to hold them in; None for each as it is stored, GGUF's in float32.

    Returns:
        Hugging Face name -> tensor, linear weights [out, in]. ``lm_head.weight`` is absent if and
        only if ``config.tie_word_embeddings`` (use ``model.embed_tokens.weight``). A tensor already
        stored in ``dtype`` is a view of the memory-mapped file, so that processes share it: copied
        on write, never written back.

    Raises:
        CheckpointError: files absent, truncated or foreign; only pickles; or any tensor missing,
            unexpected or mis-shaped, all listed.
    """
    path = Path(files) if isinstance(files, str | Path) else files.path
    if path.suffix == ".gguf":
        return _from_gguf(path, config, dtype)
    if (path / _SINGLE).exists():
        with open_safetensors(path / _SINGLE) as file:
            return _collect(
                {name: file for name in file.names}, config, dtype, where=str(path / _SINGLE)
            )
    if (path / _INDEX).exists():
        return _from_shards(path, config, dtype)
    raise _no_weights(path)


def _from_shards(
    path: Path, config: ModelConfig, dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    index = read_json(path / _INDEX)
    where = str(path / _INDEX)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) for shard in weight_map.values()
    ):
        raise CheckpointError("weight_map is missing or not an object of strings", field=where)
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if Path(shard).name != shard or "\\" in shard:
            raise CheckpointError(f"weight_map: {shard!r} is not a plain file name", field=where)
    absent = [shard for shard in shards if not (path / shard).is_file()]
    if absent:
        raise CheckpointError(
            f"{len(absent)} of {len(shards)} shards are missing: {', '.join(absent[:8])}",
            field=where,
            remedy="Download the model again",
        )
    with ExitStack() as stack:
        opened = {shard: stack.enter_context(open_safetensors(path / shard)) for shard in shards}
        holders = {name: file for file in opened.values() for name in file.names}
        for name, shard in weight_map.items():  # the index decides, also where it is wrong
            holders.pop(name, None)
            if name in opened[shard].names:
                holders[name] = opened[shard]
        return _collect(holders, config, dtype, where=str(path))


def _collect(
    holders: dict[str, SafetensorsFile], config: ModelConfig, dtype: torch.dtype | None, where: str
) -> dict[str, torch.Tensor]:
    """Check the headers of all files together, then read."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in {id(file): file for file in holders.values()}.values():
        shapes |= {
            name: shape for name, shape in file.shapes().items() if holders.get(name) is file
        }
    wanted = _check(shapes, config, where)
    for file in {id(file): file for file in holders.values()}.values():
        file.require_floating(name for name in file.names if name in wanted)
    return _read(wanted, lambda name: holders[name].get(name), dtype)


def _from_gguf(
    path: Path, config: ModelConfig, dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    file = GgufFile.open(path)
    wanted = _check(file.shapes(), config, str(path))
    return _read(
        wanted,
        lambda name: torch.from_numpy(file.tensor(name, config.num_heads, config.num_kv_heads)),
        dtype,
    )


def _check(shapes: dict[str, tuple[int, ...]], config: ModelConfig, where: str) -> list[str]:
    """Raise unless ``shapes`` are the model's; the names to read, in the model's order."""
    expected = config.tensor_shapes()
    optional = {"lm_head.weight"} if config.tie_word_embeddings else set()
    check_tensors(shapes, expected, optional, where, ignored_suffixes=_HARMLESS)
    return [name for name in expected if name not in optional]


def _read(
    names: list[str], read: Callable[[str], torch.Tensor], dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    return {
        name: tensor if dtype is None else tensor.to(dtype)
        for name, tensor in ((name, read(name)) for name in names)
    }


def _no_weights(path: Path) -> CheckpointError:
    found = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if found:
        return CheckpointError(
            f"only pickled weights ({', '.join(found[:4])}); pickles can run code and are not read",
            field=str(path),
            remedy="Convert them once, where you trust them, with safetensors.torch.save_file("
            'torch.load(FILE, weights_only=True), "model.safetensors"), or use a revision of the '
            "model that has safetensors",
        )
    return CheckpointError(
        f"no weights: neither {_SINGLE} nor {_INDEX}",
        field=str(path),
        remedy="Download the model again, or pass a GGUF file",
    )
