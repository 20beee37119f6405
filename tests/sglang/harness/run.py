"""One run of SGLang in processes of its own: what is asked of it, and what it answered."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHIM = HERE.parent / "shim"
LOG_TAIL = 40  # lines shown when a run fails
AT_ONCE = 2  # engines: each takes a core and 2.5 GB, and more than one core to start
PLACES = threading.BoundedSemaphore(AT_ONCE)

Request = dict[str, Any]

CPU_ENVIRONMENT = {
    "PYTHONPATH": str(SHIM),
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
#: Without AMX, SGLang refuses EAGLE by `attention_backend` alone, and runs on the other three.
CPU_ARGUMENTS = {
    "device": "cpu",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "attention_backend": "torch_native",
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "intel_amx",
    "random_seed": 0,
    "log_level": "info",
}


@dataclass(frozen=True)
class Run:
    """What is asked of one engine.

    Attributes:
        engine: arguments of `sglang.Engine` beyond those that every run on a CPU has.
        jobs: name -> requests, as `engine.py` wants them.
        config: the plugin's settings; None runs SGLang without them.
        environment: further variables.
        timeout: seconds after which the run has hung.
    """

    engine: dict[str, Any]
    jobs: dict[str, list[Request]]
    config: dict[str, Any] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    timeout: float = 300


@dataclass(frozen=True)
class Answer:
    """What SGLang returned for one request."""

    tokens: list[int]
    text: str
    meta: dict[str, Any]
    error: str | None = None

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Answer:
        return cls(
            raw.get("output_ids") or [],
            raw.get("text") or "",
            raw.get("meta_info") or {},
            raw.get("error"),
        )

    @property
    def finish(self) -> str:
        """length, stop or abort."""
        return self.meta["finish_reason"]["type"]

    @property
    def rounds(self) -> int:
        return self.meta["spec_verify_ct"]

    @property
    def accepted(self) -> int:
        """Drafts followed, promoted ones included."""
        return self.meta["spec_num_correct_drafts"]

    @property
    def accepted_histogram(self) -> list[int]:
        """Entry i: rounds that followed i drafts."""
        return self.meta["spec_correct_drafts_histogram"]

    @property
    def own(self) -> dict[str, Any]:
        """The plugin's account of the request."""
        return self.meta["adaptivespec"]

    @property
    def logprobs(self) -> list[float]:
        """The target's log probability of each token."""
        return [entry[0] for entry in self.meta["output_token_logprobs"]]

    @property
    def top_logprobs(self) -> list[list[tuple[float, int]]]:
        """At each position the likeliest tokens, (log probability, token), falling."""
        return [
            [(entry[0], entry[1]) for entry in position]
            for position in self.meta["output_top_logprobs"]
        ]


@dataclass(frozen=True)
class Result:
    """What an engine answered.

    Attributes:
        answers: job -> answers, in the order of its requests.
        flushed: whether the idle engine could empty its cache.
        info: the engine's internal state after that.
        trace: the plugin's lines, one per decode round; empty for a run without settings.
        log: everything the processes printed.
    """

    answers: dict[str, list[Answer]]
    flushed: bool
    info: list[dict[str, Any]]
    trace: list[dict[str, Any]]
    log: str

    def __getitem__(self, job: str) -> list[Answer]:
        return self.answers[job]

    def accepted(self, answer: Answer) -> list[int]:
        """Drafts followed in each round of one of the answers, before the last was cut."""
        name = answer.meta["id"]
        return [
            line["accepted"][line["requests"].index(name)]
            for line in self.trace
            if name in line["requests"]
        ]

    @property
    def triples(self) -> set[tuple[int, ...]]:
        """The triples that rounds were drafted with."""
        return {tuple(line["triple"]) for line in self.trace}


class RunFailed(Exception):
    """The engine did not start, died, or hung; the message ends with its log."""


def execute(run: Run, folder: Path) -> Result:
    """Start the engine in `folder`, wait for its answers, and end all of its processes."""
    folder.mkdir(parents=True)
    asked, answered, trace = (folder / f for f in ("asked.json", "answered.json", "trace.jsonl"))
    task = {"engine": {**CPU_ARGUMENTS, **run.engine}, "jobs": run.jobs}
    asked.write_text(json.dumps(task), encoding="utf-8")
    config = None if run.config is None else {**run.config, "trace": str(trace)}
    log = launch(
        [str(HERE / "engine.py"), str(asked), str(answered)],
        folder / "log.txt",
        environment(config) | run.environment,
        run.timeout,
    )
    if not answered.is_file():
        raise RunFailed(f"no answers from SGLang\n{tail(log)}")
    result = json.loads(answered.read_text(encoding="utf-8"))
    lines = trace.read_text(encoding="utf-8").splitlines() if trace.is_file() else []
    return Result(
        {name: list(map(Answer.read, job)) for name, job in result["answers"].items()},
        result["flushed"],
        result["info"],
        [json.loads(line) for line in lines],
        log,
    )


def environment(config: dict[str, Any] | None) -> dict[str, str]:
    """The variables of a process that runs SGLang on a CPU with these settings of the plugin."""
    variables = {**os.environ, **CPU_ENVIRONMENT}
    variables.pop("ADAPTIVESPEC_CONFIG", None)
    if config is not None:
        variables["ADAPTIVESPEC_CONFIG"] = json.dumps(config)
    variables["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(_other_models())
    return variables


_running: set[subprocess.Popen[Any]] = set()


def launch(arguments: list[str], log: Path, variables: dict[str, str], timeout: float) -> str:
    """Run Python to its end, with all that it starts; what was printed. RunFailed after `timeout`.

    The process leads a group of its own, which is ended with it, and no other process is.
    """
    with PLACES, log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=log.parent,
            start_new_session=True,
        )
        _running.add(process)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"not done after {timeout} s\n{tail(log.read_text())}") from error
        finally:
            end(process)
    return log.read_text(encoding="utf-8", errors="replace")


def end(process: subprocess.Popen[Any]) -> None:
    """Kill what is left of the group that the process leads."""
    _running.discard(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_all() -> None:
    """Kill every engine that still runs."""
    for process in list(_running):
        end(process)


def tail(log: str) -> str:
    return "\n".join(log.splitlines()[-LOG_TAIL:])


def _other_models() -> list[str]:
    """Modules of models that are not served: importing all of them takes longer than the rest."""
    from importlib.util import find_spec

    spec = find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    models = (Path(spec.origin).parent / "srt" / "models").glob("*.py")
    return sorted({path.stem for path in models} - {"llama", "llama_eagle3"})
