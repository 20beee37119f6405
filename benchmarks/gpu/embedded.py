"""Our engine in a process of its own: the passes of a job, done as ``serve.py`` does them.

    python embedded.py JOB.json

``engine`` of the job are keyword arguments of ``Engine.from_pretrained``, and ``policy`` besides.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    begin = time.monotonic()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from adaptivespec.engine import Engine

    policy = job["engine"].pop("policy")
    job["engine"]["draft_model"] = readable(job["engine"]["draft_model"], Path(job["out"]).parent)
    with Path(job["out"]).open("a", encoding="utf-8") as out:

        def write(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        engine = Engine.from_pretrained(**job["engine"])
        write(started=time.monotonic() - begin, server=about(engine))
        for work in job["passes"]:
            if not work["needed"] and time.monotonic() - begin > job["enough"]:
                write(name=work["name"], timed=work["timed"], skipped="out of time")
            else:
                done = run(engine, policy, job["prompts"], work)
                write(name=work["name"], timed=work["timed"], **done)
        write(ended=time.monotonic() - begin, memory=_memory(engine))


def readable(draft: str, folder: Path) -> str:
    """The head, or a copy in ``folder`` where it is a pickle: our engine reads none."""
    from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
    from adaptivespec.draft.heads import HeadFiles
    from adaptivespec.engine.weights import resolve_model

    path = Path(draft) if Path(draft).exists() else resolve_model(draft, pickles=True).path
    if not HeadFiles.find(path).pickled:
        return str(path)
    copy = folder / "head"
    Eagle3Checkpoint.load(path, allow_pickles=True).save_as(copy, "sglang")
    return str(copy)


def run(engine: Any, policy: str, prompts: list[str], work: dict[str, Any]) -> dict[str, Any]:
    """Wall seconds of the pass and its answers, one after another."""
    answers, begin = [], time.perf_counter()
    for request in work["requests"]:
        parameters = dict(request["sampling_params"])
        kappa = parameters.pop("custom_params", {}).get("adaptivespec", {}).get("kappa")
        margin = {"rule": "margin", "kappa": kappa} if kappa is not None and kappa < 1 else {}
        answers.append(
            engine.generate(
                prompts[request["prompt"] % len(prompts)],
                policy="none" if kappa is None else policy,
                max_tokens=parameters.pop("max_new_tokens"),
                top_logprobs=work["top_logprobs"],
                **margin,
                **parameters,
            )
        )
    seconds = time.perf_counter() - begin
    pairs = zip(work["requests"], answers, strict=True)
    return {"seconds": seconds, "answers": [_answer(*pair, bool(work["timed"])) for pair in pairs]}


def _answer(request: dict[str, Any], answer: Any, short: bool) -> dict[str, Any]:
    """What the checks read of an answer; ``short`` leaves out the tokens."""
    stats = answer.stats
    line: dict[str, Any] = {
        "prompt": request["prompt"],
        "tokens": answer.completion_tokens,
        "verifications": stats.num_spec_steps,
        "finish": answer.finish_reason,
        "adaptivespec": {
            "lossless": answer.lossless,
            "num_promoted_tokens": stats.num_promoted_tokens,
        },
        "times": answer.timings,
    }
    if short:
        return line
    line |= {"sampling_params": request["sampling_params"], "token_ids": answer.token_ids}
    if any(token.top_logprobs for token in answer.tokens):
        best = [[logprob for _, logprob in token.top_logprobs] for token in answer.tokens]
        line["gaps"] = [first - second for first, second in best]
        pairs = zip(best, answer.tokens, strict=True)
        line["regrets"] = [place[0] - token.logprob for place, token in pairs]
    return line


def about(engine: Any) -> dict[str, Any]:
    """What runs, and how far captured passes are from uncaptured ones, in the logits' spread."""
    from adaptivespec.engine.identity import backend_of

    facts = {"backend": backend_of(engine), "dtype": engine.dtype, "model": engine.model_name}
    return facts | {"head": engine.head_name, "captured_deviation": deviation(engine.target)}


def deviation(target: Any) -> float | None:
    """The largest distance, after the graph was replayed on a second tree; None without graphs."""
    from adaptivespec.core.tree import DraftTree
    from adaptivespec.engine.model.static_target import StaticTarget
    from adaptivespec.nn.static import Uncaptured

    if not isinstance(target, StaticTarget):
        return None
    loose = StaticTarget(target.model, target.limits.max_model_len, Uncaptured())
    prompt = [(7919 * i + 11) % target.limits.vocab_size for i in range(100)]
    tokens = prompt[3:15]
    found = []
    for each in (target, loose):
        cache = each.new_cache(256)
        each.prefill(cache, prompt)
        for parents in ([-1, *range(11)], [-1, 0, 0, 0, 1, 1, 2, 3, 4, 4, 8, 9]):
            tree = DraftTree.from_parents(tokens, parents, device=target.device)
            logits = each.verify(cache, tree).logits.float()
        found.append(logits)
    return float((found[0] - found[1]).abs().max() / found[1].std())


def _memory(engine: Any) -> dict[str, float] | None:
    import torch

    if engine.target.device.type != "cuda":
        return None
    return {"allocated_gb": torch.cuda.max_memory_allocated(engine.target.device) / 1e9}


if __name__ == "__main__":
    main()
