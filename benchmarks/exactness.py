"""Strict verification against plain decoding, greedy, token for token.

A difference counts as a tie when the target's two best logits at that place are closer than
`--tie`; the plain token is then forced and the comparison goes on behind it.
"""

from __future__ import annotations

from itertools import count

import torch
from tasks import arguments, finish, prompts

from adaptivespec import Engine

#: Largest gap that counts as a tie.  Logits of 16 to 32 are 0.125 apart in bfloat16, so roundings
#: of nearly equal logits can lie two steps apart.
#: The native engine's passes agree in every bit: not even a tie may fall differently.
TIES = {"float32": 1e-4, "bfloat16": 0.25, "A8": 0.0, "A16": 0.0}


def gap(engine: Engine, ids: list[int]) -> float:
    """Distance of the target's two best logits after `ids`."""
    cache = engine.target.new_cache(len(ids))
    best = engine.target.prefill(cache, ids).logits[0].float().topk(2).values
    return float(best[0] - best[1])


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--policies", default="chain:3;static:5,4,16;dcs", help="with ; between")
    parser.add_argument("--tie", type=float, default=None, help="logits; default by dtype")
    args = parser.parse_args()
    engine = Engine.from_pretrained(
        backend=args.backend,
        dtype=args.dtype,
        threads=args.threads,
        draft_model=args.draft_model,
    )
    tie = TIES[engine.dtype] if args.tie is None else args.tie
    rows = []
    policies = args.policies.split(";")
    for task in args.tasks.split(","):
        for index, prompt in enumerate(prompts(args.data, task, args.limit)):
            ids = engine.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
            plain = engine.generate(ids, policy="none", max_tokens=args.max_tokens).token_ids
            for policy in policies:
                gaps: list[float] = []
                done = 0
                for _ in count():
                    rest = args.max_tokens - done
                    strict = engine.generate(ids + plain[:done], policy=policy, max_tokens=rest)
                    tail = plain[done:]
                    same = next(
                        (
                            i
                            for i in range(max(len(tail), len(strict.token_ids)))
                            if tail[i : i + 1] != strict.token_ids[i : i + 1]
                        ),
                        None,
                    )
                    if same is None:
                        break
                    gaps.append(gap(engine, ids + plain[: done + same]))
                    done += same + 1
                    if done >= len(plain):
                        break
                rows.append({"task": task, "index": index, "policy": policy, "gaps": gaps})
    print(f"dtype {engine.dtype}, {args.limit} prompts a task x {args.max_tokens} tokens")
    print(f"{'policy':16} {'requests':>8} {'equal':>6} {'differences':>11} {'largest gap':>11}")
    worst = 0.0
    for policy in policies:
        mine = [row for row in rows if row["policy"] == policy]
        gaps = [g for row in mine for g in row["gaps"]]
        worst = max([worst, *gaps])
        equal = sum(not row["gaps"] for row in mine)
        print(f"{policy:16} {len(mine):8} {equal:6} {len(gaps):11} {max(gaps, default=0):11.5f}")
    verdict = "holds" if worst <= tie else "FAILS"
    if tie == 0:
        verdict = "FAILS" if any(row["gaps"] for row in rows) else "holds"
    print(f"every difference at a gap of at most {tie:g}: {verdict}")
    finish(args, rows)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
