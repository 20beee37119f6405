"""Measuring what passes cost on this machine, and keeping the result.

Profiles are JSON files below the cache directory, one per target, head, precision, thread count,
processor and versions of torch and of this package.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from adaptivespec import __version__
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.engine.devices import describe
from adaptivespec.engine.session import Session
from adaptivespec.engine.target import Target
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent
from adaptivespec.policy.costs import CostProfile, Table, isotonic
from adaptivespec.policy.plan import TreePlan

if TYPE_CHECKING:
    from adaptivespec.native.floor import Floor

#: Rows of a pass of the drafter that are timed.
DRAFT_ROWS = (1, 4, 8, 16)
_LEVELS = 4
#: A larger pass slows those of the next milliseconds by half, so it is not measured among them.
_SMALL = 16


@dataclass(frozen=True)
class Effort:
    """How much is measured: verify sizes at context lengths, each `repeats` times at most.

    No further repeat is begun once a context has taken `seconds`, so that a slow model is measured
    coarsely rather than for minutes.
    """

    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    seconds: float = math.inf


#: Enough to begin with, in about three seconds; costs go on being learnt while decoding.
QUICK = Effort((1, 2, 4, 8, 16, 32, 64), (128,), 5, seconds=5.0)
FULL = Effort((1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64), (128, 512, 1500), 20)


def measure(
    target: Target[Any],
    drafter: Drafter[Any] | None,
    name: str,
    effort: Effort = QUICK,
    progress: ProgressCallback | None = None,
) -> CostProfile:
    """Time verify passes and passes of the drafter; medians, verify times rising in the size.

    Small sizes take turns within every repeat, then large ones, so that a busy moment falls on all
    of them alike. Contexts that do not fit into the target are left out.
    """
    report = progress or silent
    room = target.limits.max_model_len - max(effort.sizes) - 1
    contexts = sorted({min(context, room) for context in effort.contexts})
    if contexts[0] < 1:
        raise ConfigError(
            f"is too short to measure costs: {target.limits.max_model_len}", field="max_model_len"
        )
    total = len(contexts) * effort.repeats + 1
    verify = []
    for at, context in enumerate(contexts):
        session = Session(target, drafter)
        session.begin([_token(target, i) for i in range(context)], drafting=drafter is not None)
        trees = {size: _tree(target, size) for size in effort.sizes}
        times: dict[int, list[float]] = {size: [] for size in effort.sizes}
        session.verify(trees[effort.sizes[-1]])  # warm: buffers and kernels
        began = perf_counter()
        small = [size for size in effort.sizes if size <= _SMALL]
        large = [size for size in effort.sizes if size > _SMALL]
        for repeat, sizes in enumerate([small] * effort.repeats + [large] * effort.repeats):
            if repeat % effort.repeats and perf_counter() - began > effort.seconds:
                continue
            report(ProgressEvent("measuring costs", at * effort.repeats + repeat // 2, total))
            for size in sizes:
                times[size].append(_timed(session.verify, trees[size]))
        medians = isotonic([statistics.median(times[size]) for size in effort.sizes])
        verify.append((context, tuple(zip(effort.sizes, medians, strict=True))))
    draft: Table = ((1, 0.0),)
    overhead = 0.0
    if drafter is not None:
        draft, overhead = _drafting(target, drafter, effort.repeats)
    report(ProgressEvent("measuring costs", total, total))
    return CostProfile(name, tuple(verify), draft, overhead)


def _drafting(target: Target[Any], drafter: Drafter[Any], repeats: int) -> tuple[Table, float]:
    """Seconds of one drafter pass by rows, and of reading the root's row before the first level."""
    session = Session(target, drafter)
    session.begin([_token(target, i) for i in range(32)], drafting=True)
    session.begin_output([_token(target, 7)])
    passes: dict[int, list[float]] = {rows: [] for rows in DRAFT_ROWS}
    reads = []
    step = _tree(target, 2, chain=True)
    for _ in range(repeats + 1):
        out = session.verify(step)
        tokens = step.token.tolist()
        session.commit([0, 1], tokens, [tokens[1], tokens[0]], out)
        reads.append(_timed(session.confidence))
        for rows in DRAFT_ROWS:
            one, more = TreePlan(1, rows, 2), TreePlan(1 + _LEVELS, rows, 2)
            first = _timed(session.draft, one)
            passes[rows].append((_timed(session.draft, more) - first) / _LEVELS)
    medians = isotonic([max(statistics.median(passes[rows][1:]), 0.0) for rows in DRAFT_ROWS])
    return tuple(zip(DRAFT_ROWS, medians, strict=True)), statistics.median(reads[1:])


def floor(target: Target[Any]) -> Floor | None:
    """What passes of a native target cannot be quicker than here, measured in a second; else None.

    Raises:
        NativeError: there is no memory to read.
    """
    from adaptivespec.engine.model.native_target import NativeTarget
    from adaptivespec.native.floor import Floor, Work, measure_rates

    if not isinstance(target, NativeTarget):
        return None
    work = Work.of(target.model, target.mode)
    return Floor(measure_rates(work.weight_bytes, target.threads.most), work)


def cached(
    cache_dir: Path, key: Sequence[str], make: Callable[[], CostProfile], fresh: bool = False
) -> CostProfile:
    """The profile kept for `key`; made and kept when there is none, when unreadable or `fresh`."""
    digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:16]
    path = cache_dir / "costs" / f"{digest}.json"
    if not fresh and path.is_file():
        try:
            return CostProfile.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, ConfigError):
            pass  # a damaged file is replaced
    profile = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(profile.to_json()), encoding="utf-8")
        partial.replace(path)
    except OSError:
        pass  # a cache that cannot be written costs a few seconds next time
    return profile


def machine_key(target: Target[Any], model: str, head: str) -> list[str]:
    """What a profile depends on."""
    return [
        model,
        head,
        target.precision,
        describe(target.device),
        str(torch.get_num_threads()),
        platform.machine(),
        _processor(),
        torch.__version__,
        __version__,
    ]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _tree(target: Target[Any], size: int, chain: bool = False) -> DraftTree:
    """`size` nodes: a chain, or levels of four under the root, four deep at most per branch."""
    parents = [-1] + [node - 1 if chain else max(0, node - 4) for node in range(1, size)]
    tokens = [_token(target, node) for node in range(size)]
    return DraftTree.from_parents(tokens, parents, device=target.device)


def _token(target: Target[Any], i: int) -> int:
    return (i * 7919 + 11) % target.limits.vocab_size


def _timed(call: Callable[..., object], *arguments: object) -> float:
    start = perf_counter()
    call(*arguments)
    return perf_counter() - start
