"""Where the milliseconds of a step go: torch's operators, summed over a generation."""

from __future__ import annotations

import argparse

import torch

from adaptivespec import Engine

PROMPT = "A baker sells 24 muffins a day for 3 dollars each. How much does he make in a week?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="chain:3")
    parser.add_argument("--rule", default="strict")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--backend", default="native", help="native or torch")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-tokens", type=int, default=64)
    args = parser.parse_args()
    engine = Engine.from_pretrained(backend=args.backend, dtype=args.dtype, threads=args.threads)
    options = {"rule": args.rule, "policy": args.policy, "max_tokens": args.max_tokens}
    engine.generate(PROMPT, **options)
    plain = engine.generate(PROMPT, **options)
    steps = plain.stats.num_spec_steps
    for name, seconds in plain.timings.items():
        print(f"{name:10} {1e3 * seconds / steps:8.3f} ms per step")
    with torch.profiler.profile() as profile:
        engine.generate(PROMPT, **options)
    print(f"\n{'operator':44} {'ms/step':>9} {'calls/step':>11}")
    for event in sorted(profile.key_averages(), key=lambda e: -e.self_cpu_time_total)[:20]:
        milliseconds = event.self_cpu_time_total / 1e3 / steps
        print(f"{event.key[:44]:44} {milliseconds:9.3f} {event.count / steps:11.1f}")


if __name__ == "__main__":
    main()
