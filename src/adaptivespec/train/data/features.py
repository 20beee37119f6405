"""What the target computes on the training texts, computed once and kept in shards on disk."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from adaptivespec.core.errors import CheckpointError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.target import Pass, Target
from adaptivespec.train.data.corpus import Item

#: Texts per shard: a unit of work that a killed run repeats at most once.
SHARD = 128
#: Tokens of an answer that run through the target together.
ROWS = 64
#: Of a fingerprint: which files, how many samples of each, and how long.
WEIGHTS = (".safetensors", ".gguf", ".bin")
SAMPLES, SAMPLE_BYTES = 64, 4096
_DTYPES = {"BF16": torch.bfloat16, "I32": torch.int32}


@dataclass
class Sequence_:
    """One text with what the target computed on it; `n` tokens, the response from `prompt_len`.

    `final` and `greedy` are zero in front of the prompt's last token.
    """

    tokens: Tensor  # i64[n]
    taps: Tensor  # bf16[n, taps * H]
    final: Tensor  # bf16[n, H], the residual stream leaving the last layer
    greedy: Tensor  # i64[n], the target's argmax after each token
    prompt_len: int


@dataclass
class Features:
    """The target on one text of `n` tokens, `m` of them from the prompt's last token on."""

    taps: Tensor  # bf16[n, taps * H]
    final: Tensor  # bf16[m, H]
    greedy: Tensor  # i32[m]


class FeatureShards:
    """A directory of features, found by the text they belong to.

    Texts are looked up by their tokens, so that a corpus may grow, shrink or be reordered, and only
    what is new is computed. About `2 * (taps + 1) * hidden` bytes per token.
    """

    def __init__(self, path: Path, target: Target[Any], tap_layers: Sequence[int]) -> None:
        self.target, self.tap_layers = target, tuple(tap_layers)
        name = "-".join(map(str, (target.precision, *tap_layers)))
        self.path = path / name
        self.path.mkdir(parents=True, exist_ok=True)
        self._places: dict[str, tuple[Path, int, int]] = {}
        self._files: dict[Path, _RowFile] = {}
        for file in sorted(self.path.glob("*.safetensors")):
            self._index(file)

    def __contains__(self, item: Item) -> bool:
        return _key(item) in self._places

    def write(self, items: Sequence[Item], features: Sequence[Features]) -> None:
        """Keep the features of `items` as one shard."""
        merged = {
            name: torch.cat([getattr(f, name) for f in features])
            for name in ("taps", "final", "greedy")
        }
        rows = [[_key(i), len(i.tokens), len(i.response) + 1] for i in items]
        name = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        file = self.path / f"{name}.safetensors"
        partial = file.with_suffix(".partial")
        save_file(merged, partial, {"items": json.dumps(rows)})
        partial.replace(file)
        self._index(file)

    def read(self, item: Item) -> Sequence_:
        """The features of `item`, which must be there."""
        path, row, answer = self._places[_key(item)]
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _RowFile(path)
        n, m = len(item.tokens), len(item.response) + 1
        final = torch.zeros(n, self.target.limits.hidden_size, dtype=torch.bfloat16)
        greedy = torch.zeros(n, dtype=torch.long)
        final[n - m :] = file.rows("final", answer, m)
        greedy[n - m :] = file.rows("greedy", answer, m)
        return Sequence_(
            tokens=torch.tensor(item.tokens),
            taps=file.rows("taps", row, n),
            final=final,
            greedy=greedy,
            prompt_len=len(item.prompt),
        )

    def build(
        self,
        items: Sequence[Item],
        workers: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Compute what is missing, in `workers` threads; `progress(tokens done, in all)`."""
        missing = [item for item in items if item not in self]
        # Of two equal texts one is enough.
        missing = list({_key(item): item for item in missing}.values())
        total, done = sum(len(item.tokens) for item in missing), 0
        shards = [missing[start : start + SHARD] for start in range(0, len(missing), SHARD)]
        with self.target.one_thread(), ThreadPoolExecutor(max(workers, 1)) as pool:
            futures = {pool.submit(self._make, shard): shard for shard in shards}
            try:
                for future in as_completed(futures):
                    shard = futures[future]
                    self.write(shard, future.result())
                    done += sum(len(item.tokens) for item in shard)
                    # A result held until the end would be the whole corpus in memory.
                    del futures[future]
                    if progress:
                        progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _make(self, shard: Sequence[Item]) -> list[Features]:
        torch.set_num_threads(1)  # of this worker
        return [features_of(self.target, item, self.tap_layers) for item in shard]

    def _index(self, file: Path) -> None:
        try:
            with safe_open(file, framework="pt") as shard:
                rows = json.loads(shard.metadata()["items"])
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{file} cannot be read: {error!r}",
                field="features",
                remedy="Remove the file; it is made again",
            ) from error
        row = answer = 0
        for key, n, m in rows:
            self._places[key] = (file, row, answer)
            row, answer = row + n, answer + m


class _RowFile:
    """Rows of the tensors of a safetensors file, read as they are asked for.

    A mapped file reads megabytes ahead of every text that is picked at random, which is most of
    what a corpus larger than memory would read.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        size = int.from_bytes(self._file.read(8), "little")
        self._tensors = json.loads(self._file.read(size))
        self._start = 8 + size

    def rows(self, name: str, first: int, count: int) -> Tensor:
        about = self._tensors[name]
        shape, dtype = about["shape"][1:], _DTYPES[about["dtype"]]
        width = math.prod(shape) * dtype.itemsize
        at = self._start + about["data_offsets"][0] + first * width
        data = bytearray(os.pread(self._file.fileno(), count * width, at))
        return torch.frombuffer(data, dtype=dtype).view(count, *shape)


class FeatureStore:
    """The features of `items`, all of which `shards` must hold: a sequence to train on."""

    def __init__(self, shards: FeatureShards, items: Sequence[Item]) -> None:
        self.shards, self.items = shards, items

    def __getitem__(self, index: int) -> Sequence_:
        return self.shards.read(self.items[index])


def features_of(target: Target[Any], item: Item, tap_layers: Sequence[int]) -> Features:
    """Run the target over one text."""
    tokens, first = list(item.tokens), len(item.prompt) - 1
    cache = target.new_cache(len(tokens) + ROWS)
    taps, final, greedy = [], [], []
    if first:
        taps.append(target.prefill(cache, tokens[:first], tap_layers).taps.bfloat16())
    for start in range(first, len(tokens), ROWS):
        chunk = tokens[start : start + ROWS]
        out = target.verify(cache, DraftTree.chain(chunk), tap_layers)
        taps.append(out.taps.bfloat16())
        final.append(final_of(out))
        greedy.append(out.logits.argmax(-1).int())
        target.commit(cache, range(len(chunk)))
    return Features(torch.cat(taps), torch.cat(final), torch.cat(greedy))


def fingerprint(model: Path) -> str:
    """A short name for the weights of a model, a file or a directory of some.

    From samples all over them, so that what one target computed is never taken for another's.
    """
    files = [model] if model.is_file() else sorted(f for f in model.iterdir() if f.is_file())
    digest = hashlib.sha256()
    for file in files:
        if file.suffix in WEIGHTS:
            size = file.stat().st_size
            digest.update(f"{file.name} {size}".encode())
            with file.open("rb") as data:
                for number in range(SAMPLES):
                    data.seek(number * size // SAMPLES)
                    digest.update(data.read(SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def final_of(out: Pass) -> Tensor:
    """What leaves the last layer, `bf16[rows asked, H]`."""
    if out.hidden is None:
        raise TypeError("a target to train for has to give its hidden states")
    return out.hidden.bfloat16()


def _key(item: Item) -> str:
    text = json.dumps([item.prompt, item.response])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
