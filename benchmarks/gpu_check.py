"""Do our engine and the SGLang plugin do here what they should, and how fast?

In at most ten minutes.  Five engines run one after another, each in processes of its own: ours
(docs/cuda.md), SGLang without speculation, the plugin with one triple, the plugin with dcs, and
SGLang's own EAGLE3.  Their answers are compared, and what time is left is spent on timing.  The
report is written after each engine, so that a kill loses nothing; what the time does not suffice
for is skipped, and said to be.

    gpu_check.py                                   # a cached pair of models, or the embedded one
    gpu_check.py MODEL DRAFT --json report.json
    gpu_check.py --engines embedded                # our engine alone: SGLang is not needed
    gpu_check.py --device cpu                      # tries this script; see below

On a CPU it needs what scripts/sglang_cpu.sh installs, and the stand-ins for SGLang's operators:

    PYTHONPATH=tests/sglang/shim SGLANG_USE_CPU_ENGINE=1 TORCH_COMPILE_DISABLE=1 \\
    TORCHDYNAMO_DISABLE=1 OMP_NUM_THREADS=1 \\
    PYTHON=.venv-sglang/bin/python scripts/gpu_check.sh --device cpu

Exit status: 0 when everything that ran passed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import checks, engines, machine, models, plan, report
from gpu.prompts import load

from adaptivespec.core.errors import AdaptiveSpecError

INTERRUPTED = 130


def main() -> int:
    begin = time.monotonic()
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return check(args, lambda: args.seconds - (time.monotonic() - begin))
    except AdaptiveSpecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was done is in the report", file=sys.stderr)
        return INTERRUPTED


def check(args: argparse.Namespace, remaining: Callable[[], float]) -> int:
    """Run everything that the time allows; ``remaining`` gives the seconds left."""
    size = plan.CPU if args.device == "cpu" else plan.CUDA
    size = replace(size, repeats=size.repeats if args.repeats is None else args.repeats)
    facts = machine.describe(args.device)
    print(report.machine(facts), flush=True)
    found = models.find(
        args.model, args.draft, os.environ, models.hub_folder(os.environ), machine.memory(facts)
    )
    print(f"models: {found.target} with {found.draft}\n        {found.why}", flush=True)
    result: dict[str, Any] = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "argv": sys.argv,
        "machine": facts,
        "models": found._asdict(),
        "triple": args.triple,
        "kappa": args.kappa,
        "tie": args.tie,
        "prompts": load(args.data, max(size.prompts, *size.batches)),
        "engines": {},
        "checks": [],
        "speed": [],
    }
    of_sglang = [name for name in args.engines if name != "embedded"]
    verdict = machine.checks(facts, args.device, bool(of_sglang))
    if of_sglang and any(each.status == "fail" for each in verdict):
        args.engines = [name for name in args.engines if name == "embedded"]
        print("no engine of SGLang is started: see the checks", flush=True)
    for which, name in enumerate(args.engines):
        left = [plan.WEIGHTS[each] for each in args.engines[which:]]
        done = _engine(name, args, result, size, remaining(), left)
        result["engines"][name] = done
        print(report.engine(name, done), flush=True)
        _write(args, result, verdict)
        if done["error"] == engines.INTERRUPTED:
            raise KeyboardInterrupt
    rows = _write(args, result, verdict)
    print()
    print(report.checks(rows))
    if any(name in result["engines"] for name in ("static", "dcs")):
        print(report.states(result["engines"]))
    print(report.speed(result["speed"], args.device))
    print(report.steps(result["engines"]))
    counts = {status: sum(row.status == status for row in rows) for status in checks.STATUSES}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    print(f"logs: {args.logs}" + (f", report: {args.json}" if args.json else ""))
    return checks.exit_status(rows)


def _engine(
    name: str,
    args: argparse.Namespace,
    result: dict[str, Any],
    size: plan.Size,
    remaining: float,
    weights: list[float],
) -> dict[str, Any]:
    """One engine's result, or why it was not started."""
    if remaining < size.minimum:
        why = f"{max(remaining, 0):.0f} s are left and a start takes {size.minimum:.0f}"
        return {"skipped": why, "passes": {}, "error": f"skipped, {why}", "server": None}
    enough, most = plan.allot(remaining, weights, size.minimum)
    found = result["models"]
    arguments = plan.engine_arguments(
        name, found["target"], found["draft"], args.triple, args.device, size
    )
    return engines.run(
        name,
        arguments if name == "embedded" else {**arguments, **args.engine_args},
        plan.plugin_configuration(name, args.triple),
        result["prompts"],
        plan.passes(name, size, args.kappa),
        enough,
        most,
        args.logs,
    )


def _write(
    args: argparse.Namespace, result: dict[str, Any], verdict: list[checks.Check]
) -> list[checks.Check]:
    """Judge what there is, write the report, and return all checks."""
    rows = verdict + checks.judge(result["engines"], args.kappa, args.tie, args.device)
    result["checks"] = [row._asdict() for row in rows]
    result["speed"] = checks.speed(result["engines"])
    if args.json:
        whole = args.json.with_suffix(args.json.suffix + ".part")
        whole.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        whole.replace(args.json)
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="folder or hub id; else ADAPTIVESPEC_GPU_MODEL")
    parser.add_argument("draft", nargs="?", help="its EAGLE-3 head; else ADAPTIVESPEC_GPU_DRAFT")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=600.0, help="for everything (600)")
    parser.add_argument("--triple", default="5,4,16", help="num_steps,topk,num_draft_tokens")
    parser.add_argument("--kappa", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, help="of every timing")
    parser.add_argument("--tie", type=float, help="gap in nats that may fall either way")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("ADAPTIVESPEC_GPU_DATA"),
        help="folder of task files to take prompts from; else ADAPTIVESPEC_GPU_DATA",
    )
    parser.add_argument("--engines", default=",".join(plan.ENGINES), help="which, in this order")
    parser.add_argument(
        "--engine-args",
        type=json.loads,
        default={},
        help="more arguments for every engine of SGLang, as JSON: '{\"tp_size\": 2}'",
    )
    parser.add_argument("--logs", type=Path, help="folder for the engines' logs")
    args = parser.parse_args()
    args.triple = [int(number) for number in args.triple.split(",")]
    args.engines = args.engines.split(",")
    if unknown := set(args.engines) - set(plan.ENGINES):
        parser.error(f"unknown engines {', '.join(unknown)}: choose from {', '.join(plan.ENGINES)}")
    if args.tie is None:
        args.tie = checks.TIES["float32" if args.device == "cpu" else "bfloat16"]
    args.logs = args.logs or Path(tempfile.mkdtemp(prefix="adaptivespec-gpu-check-"))
    args.logs.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    sys.exit(main())
