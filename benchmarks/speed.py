"""Wall time per request and per token against plain decoding in the same engine.

For every prompt all arms run one after the other in a shuffled order, `--repeats` times, and the
quickest run of each counts.  A ratio is plain / arm, so above 1 is faster; medians over prompts
with a bootstrap interval.  Lossy arms may answer longer or shorter, so both ratios are given.
"""

from __future__ import annotations

import random
import statistics

from tasks import arguments, finish, prompts

from adaptivespec import Engine

ARMS = "strict/chain:3;strict/chain:5;strict/dcs;margin:0.2/dcs;margin:0.2/chain:5"


def interval(values: list[float], rng: random.Random) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--arms", default=ARMS, help="rule/policy with ; between")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    engine = Engine.from_pretrained(
        backend=args.backend,
        dtype=args.dtype,
        threads=args.threads,
        draft_model=args.draft_model,
    )
    rng = random.Random(args.seed)  # noqa: S311  not for secrets
    arms = ["strict/none", *args.arms.split(";")]
    engine.generate("Say hello.", max_tokens=32)
    rows = []
    for task in args.tasks.split(","):
        times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
        split: dict[str, list[float]] = {arm: [0.0, 0.0, 0.0, 0.0, 0.0] for arm in arms}
        for prompt in prompts(args.data, task, args.limit):
            best: dict[str, tuple[float, float]] = {}
            for arm in _rounds(arms, args.repeats, rng):
                rule, policy = arm.split("/")
                result = engine.generate(
                    prompt, rule=rule, policy=policy, max_tokens=args.max_tokens
                )
                total = result.timings["total_s"]
                per_token = total / max(result.completion_tokens, 1)
                old = best.get(arm, (1e9, 1e9))
                best[arm] = (min(old[0], total), min(old[1], per_token))
                stats, t = result.stats, result.timings
                numbers = (t["draft_s"], t["verify_s"], t["host_s"])
                for i, value in enumerate(
                    (*numbers, stats.num_spec_steps, stats.num_committed_tokens)
                ):
                    split[arm][i] += value
            for arm in arms:
                times[arm].append(best[arm])
        print(f"\n{task}: {args.limit} prompts x {args.max_tokens} tokens, {engine.dtype}")
        head = f"{'arm':22} {'request':>8} {'95 %':>13} {'token':>7} {'tau':>6}"
        print(head + "   ms per step: draft verify  host")
        for arm in arms:
            ratios = [a[0] / b[0] for a, b in zip(times["strict/none"], times[arm], strict=True)]
            token = [a[1] / b[1] for a, b in zip(times["strict/none"], times[arm], strict=True)]
            low, high = interval(ratios, rng)
            draft, verify, host, steps, tokens = split[arm]
            row = {
                "task": task,
                "arm": arm,
                "request_ratio": statistics.median(ratios),
                "interval": [low, high],
                "token_ratio": statistics.median(token),
                "accept_length": tokens / steps,
                "ms_per_step": [1e3 * x / steps for x in (draft, verify, host)],
            }
            rows.append(row)
            ms = row["ms_per_step"]
            print(
                f"{arm:22} {row['request_ratio']:7.2f}x {low:5.2f} - {high:5.2f} "
                f"{row['token_ratio']:6.2f}x {row['accept_length']:6.2f}"
                f"                {ms[0]:5.2f} {ms[1]:6.2f} {ms[2]:5.2f}",
                flush=True,
            )
    finish(args, rows)


def _rounds(arms: list[str], repeats: int, rng: random.Random) -> list[str]:
    """All arms, shuffled anew for every repeat."""
    order: list[str] = []
    for _ in range(repeats):
        order += rng.sample(arms, len(arms))
    return order


if __name__ == "__main__":
    main()
