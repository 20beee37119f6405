"""A small benchmark from Python: three arms, four questions, and the report's table."""

import tempfile
from pathlib import Path

from adaptivespec.core.progress import silent
from adaptivespec.eval.arms import parse_arms
from adaptivespec.eval.bench import Bench, run
from adaptivespec.eval.report import write_report
from adaptivespec.eval.selection import PerTask, Selection
from adaptivespec.eval.worker import TargetSpec

bench = Bench(
    tasks=["capitals", "lists"],
    arms=parse_arms("plain; strict/dcs; margin:0.2/dcs"),
    target=TargetSpec("adaptivespec.eval.targets.engine:EngineTarget", {}),
    selection=Selection(limit=PerTask(2), timed=1, max_tokens=PerTask(16)),
    restarts=1,
    noise=False,
)

if __name__ == "__main__":  # answers are made in other processes, which import this file
    with tempfile.TemporaryDirectory() as folder:
        run(bench, Path(folder), progress=silent, notice=print)
        summary = write_report(Path(folder))  # report.html lies in the folder
    for row in summary.headline():
        print(f"{row['arm']:16} {row['text']:9} speed-up {row['speed-up']:22} tau {row['tau']}")
    print(f"{len(summary.warnings)} warnings: four questions show how it is done, and no more")
