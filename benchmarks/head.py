"""How good a draft head is: what it gets accepted, what that gains, and what its word is worth.

    head.py tau --data DATA --workers 2             accept length of fixed shapes, strict
    head.py speed --data DATA --threads 2           time against plain decoding, interleaved
    head.py confidence --data DATA -o plot.svg      calibration of its probabilities
    head.py curve POINTS.json -o curve.svg          accept length against training data

Several heads are compared with `--draft-model`, given more than once as NAME=PATH, PATH or
`shipped`; they share one target. Decoding is greedy. `--json` keeps the rows, one JSON object a
line, and `--report ROWS` makes the tables of kept rows again, of several files together if there
are several.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import head_confidence
import head_plots
import head_report
from grid_rows import read_rows
from head_runs import confidence, policies_of, speed, tau
from tasks import FILES, arguments

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.verify import make_rule

TAU_SHAPES = "5,1,6;5,4,16;3,2,4"
SPEED_SHAPES = "1,1,2;2,1,3;3,1,4;4,1,5;5,1,6;3,2,4;3,2,6;4,2,8;5,4,16"
SPEED_PROMPTS = 40  # of each task: there are some forty runs of each
INTERRUPTED = 130

Row = dict[str, Any]


def main() -> int:
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.command == "curve":
            head_plots.plot_curve(head_plots.read_points(args.points), args.plot)
            return 0
        if getattr(args, "plot", None):
            head_plots.pyplot()  # before hours of measuring
        rows, stopped = (read_rows(args.report), False) if args.report else _measured(args)
        if not rows:
            raise ConfigError("there is no finished prompt to report on")
        text = str(args.tables(rows))
        print(text)
        if args.markdown:
            args.markdown.write_text(text + "\n", encoding="utf-8")
        if getattr(args, "plot", None):
            head_plots.plot_reliability(rows, args.plot)
        return INTERRUPTED if stopped else 0
    except (AdaptiveSpecError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _measured(args: argparse.Namespace) -> tuple[list[Row], bool]:
    """The rows of a run, written as they come, and whether Ctrl-C ended it before its end."""
    for rule in args.rules.split(";"):
        make_rule(rule)
    for policy in policies_of(args):
        make_policy(policy)
    rows: list[Row] = []
    with ExitStack() as stack:
        file = stack.enter_context(args.json.open("w", encoding="utf-8")) if args.json else None
        try:
            for row in args.measure(args):
                rows.append(row)
                if file:
                    file.write(json.dumps(row) + "\n")
                    file.flush()
        except KeyboardInterrupt:
            print("stopped; the report is of what was finished", file=sys.stderr)
            return rows, True
    return rows, False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, measure, shown, about in (
        ("tau", tau, head_report.tau, "Accept length of fixed shapes."),
        ("speed", speed, head_report.speed, "Time against plain decoding, interleaved."),
        ("confidence", confidence, head_confidence.tables, "Calibration of its probabilities."),
    ):
        # Its own --data and --draft-model take the place of those of all benchmarks.
        sub = commands.add_parser(name, help=about, description=about, conflict_handler="resolve")
        add = arguments("", sub).add_argument
        add("--data", type=Path, help="folder with the task files")
        add(
            "--draft-model",
            action="append",
            default=[],
            metavar="[NAME=]PATH",
            help="a head, or 'shipped'; may be given again",
        )
        add("--report", type=Path, nargs="+", metavar="ROWS", help="tables of kept rows only")
        add("--markdown", type=Path, help="write the tables here too")
        sub.set_defaults(measure=measure, tables=shown, limit=100)
        if measure is not speed:
            add("--workers", type=_positive, default=1, help="processes of --threads threads")
            sub.set_defaults(threads=1)
    for name, shapes, rules, more in (
        ("tau", TAU_SHAPES, "strict", "with ; between"),
        ("speed", SPEED_SHAPES, "strict;margin:0.2", "with ; between"),
        ("confidence", "5,4,16", "strict", "one"),
    ):
        add = commands.choices[name].add_argument
        add("--shapes", default=shapes, help=f"of static: steps,topk,nodes, {more}")
        add("--rules", default=rules, help=more)
    add = commands.choices["confidence"].add_argument
    add("-o", "--plot", type=Path, help="reliability diagram, .svg or .png")
    commands.choices["speed"].set_defaults(limit=SPEED_PROMPTS)
    add = commands.choices["speed"].add_argument
    add("--policies", default="thrift", help="others, with ; between")
    add("--repeats", type=_positive, default=2, help="the quickest run of each arm counts")
    add("--seed", type=int, default=0, help="order of the arms")
    curve = commands.add_parser("curve", help="Accept length against tokens of training data.")
    curve.add_argument("points", type=Path, help="a JSON list; see the README")
    curve.add_argument("-o", "--plot", type=Path, required=True, help=".svg or .png")
    args = parser.parse_args()
    if args.command != "curve":
        _check(parser, args)
    return args


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if not (args.data or args.report):
        parser.error("--data is needed, or --report")
    if args.limit < 1:
        parser.error("--limit must be at least 1")
    if unknown := [task for task in args.tasks.split(",") if task not in FILES]:
        parser.error(f"no task {unknown[0]!r}; there are {', '.join(FILES)}")
    if args.command == "confidence" and ";" in args.shapes + args.rules:
        parser.error("confidence takes one shape and one rule")


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
