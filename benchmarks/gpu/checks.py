"""What must hold, judged from what the engines answered.

A check passes, fails, or is skipped with the reason.  Answers are dictionaries as ``serve.py``
writes them, ``engines`` the results of ``engines.run`` by name.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpu.plan import KAPPAS

#: Largest distance of two log probabilities that may fall either way, by dtype.  Logits of 16 to
#: 32 are 0.125 apart in bfloat16, so roundings of nearly equal ones can lie two steps apart.
TIES = {"float32": 1e-3, "bfloat16": 0.25}

STATUSES = ("pass", "fail", "skipped")

Answer = Mapping[str, Any]
Engines = Mapping[str, Mapping[str, Any]]


class Check(NamedTuple):
    """One question and its answer; ``status`` is "pass", "fail" or "skipped"."""

    name: str
    status: str
    detail: str


class Missing(Exception):
    """What a check needs was not done; the message says why."""


class Difference(NamedTuple):
    """Where an answer first differs from the reference, and the reference's gap of its two best."""

    prompt: int
    position: int
    gap: float


def first_difference(reference: Answer, answer: Answer) -> Difference | None:
    """The first token that differs; None where both are equal.

    A text that ends early differs where the other goes on.  Behind the reference's last token
    there is no gap: then it is infinite, and no tie.
    """
    one, two = reference["token_ids"], answer["token_ids"]
    for position in range(max(len(one), len(two))):
        if one[position : position + 1] != two[position : position + 1]:
            gaps = reference["gaps"]
            gap = gaps[position] if position < len(gaps) else math.inf
            return Difference(reference["prompt"], position, gap)
    return None


def same_tokens(
    reference: Sequence[Answer], answers: Sequence[Answer], tie: float
) -> tuple[bool, str]:
    """Whether every greedy answer equals the reference up to a tie, with the figures in words."""
    by_prompt = {answer["prompt"]: answer for answer in reference}
    found = [first_difference(by_prompt[answer["prompt"]], answer) for answer in answers]
    differences = [difference for difference in found if difference is not None]
    text = f"{len(found) - len(differences)} of {len(found)} answers equal"
    if not differences:
        return bool(found), text
    worst = max(differences, key=lambda difference: difference.gap)
    text += (
        f"; the others first differ where the two best tokens are up to {worst.gap:.3f} nats apart "
        f"(prompt {worst.prompt}, token {worst.position}; ties: up to {tie:g})"
    )
    return worst.gap <= tie, text


def within_kappa(answers: Sequence[Answer], tie: float) -> tuple[bool, str]:
    """Whether no token is less likely than its own request's kappa allows.

    A strict token is the best one, a promoted one has regret below -ln kappa.  Tokens of a request
    with a small kappa must have made use of it somewhere, or the check would hold for anything.
    """
    excess, used = -math.inf, 0
    for answer in answers:
        kappa = answer["sampling_params"]["custom_params"]["adaptivespec"]["kappa"]
        limit = -math.log(kappa)
        excess = max([excess, *(regret - limit for regret in answer["regrets"])])
        used += sum(regret > tie for regret in answer["regrets"])
    text = f"{used} tokens promoted; the largest regret is {excess:+.3f} nats from its limit"
    return excess <= tie and used > 0, text


def accept_length(answers: Iterable[Answer]) -> float | None:
    """Committed tokens per verification; the first token of an answer comes from its prompt."""
    pairs = [(answer["tokens"] - 1, answer["verifications"]) for answer in answers]
    steps = sum(count or 0 for _, count in pairs)
    return sum(tokens for tokens, _ in pairs) / steps if steps else None


def promoted(answers: Iterable[Answer]) -> int:
    """Promoted tokens by the plugin's own account."""
    return sum((answer["adaptivespec"] or {}).get("num_promoted_tokens", 0) for answer in answers)


def answers_of(engines: Engines, engine: str, name: str) -> list[dict[str, Any]]:
    """The answers of a pass.

    Raises:
        Missing: the engine was not run, did not come so far, or left the pass out.
    """
    if (result := engines.get(engine)) is None:
        raise Missing(f"engine {engine} was not run")
    if (done := result["passes"].get(name)) is None:
        raise Missing(f"engine {engine}: {result['error'] or 'did not come so far'}")
    if "skipped" in done:
        raise Missing(f"engine {engine}: {done['skipped']}")
    return done["answers"]


def judge(engines: Engines, kappa: float, tie: float, device: str) -> list[Check]:
    """All checks of the engines, in the order of the report."""
    return [_check(name, lambda ask=ask: ask(engines, kappa, tie, device)) for name, ask in _CHECKS]


def exit_status(checks: Sequence[Check]) -> int:
    """0 when at least one check ran and none failed."""
    ran = [check.status for check in checks if check.status != "skipped"]
    return 0 if ran and "fail" not in ran else 1


def _check(name: str, ask: Callable[[], tuple[bool, str]]) -> Check:
    try:
        holds, detail = ask()
    except Missing as reason:
        return Check(name, "skipped", str(reason))
    except (LookupError, TypeError) as error:  # an answer without what every answer has
        return Check(name, "fail", f"cannot be judged: {error!r}")
    return Check(name, "pass" if holds else "fail", detail)


def _starts(engine: str) -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, *_: Any) -> tuple[bool, str]:
        if (result := engines.get(engine)) is None or result.get("skipped"):
            raise Missing((result or {}).get("skipped") or "not asked for")
        if result["error"]:
            return False, f"{result['error']} (log: {result['log']})"
        return True, f"{result['started']:.0f} s to start, {result['seconds']:.0f} s in all"

    return ask


def _equal(engine: str, name: str, reference: str = "plain") -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, kappa: float, tie: float, device: str) -> tuple[bool, str]:
        answers = answers_of(engines, engine, name)
        greedy = [each for each in answers if each["sampling_params"]["temperature"] == 0]
        return same_tokens(answers_of(engines, reference, "alone"), greedy, tie)

    return ask


def _lossless(engine: str) -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, *_: Any) -> tuple[bool, str]:
        reports = [answer["adaptivespec"] for answer in answers_of(engines, engine, "strict")]
        told = [report for report in reports if report is not None]
        clean = [each for each in told if each["lossless"] and not each["num_promoted_tokens"]]
        text = f"{len(clean)} of {len(reports)} answers are reported lossless, without promotions"
        return len(clean) == len(reports), text

    return ask


def _margin_pays(engine: str) -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, kappa: float, *_: Any) -> tuple[bool, str]:
        strict = accept_length(answers_of(engines, engine, "strict"))
        lossy = answers_of(engines, engine, "margin")
        margin, count = accept_length(lossy), promoted(lossy)
        text = f"accept length {strict:.3f} -> {margin:.3f} at kappa {kappa:g}, {count} promotions"
        return margin > strict and count > 0, text

    return ask


def _within(engine: str, name: str) -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, kappa: float, tie: float, device: str) -> tuple[bool, str]:
        return within_kappa(answers_of(engines, engine, name), tie)

    return ask


def _kappas(engines: Engines, kappa: float, tie: float, device: str) -> tuple[bool, str]:
    """Requests of different kappas in one batch against the same requests alone.

    In float32 they are equal.  On a GPU a near tie may fall otherwise in a batch and change what
    is drafted, so that lossy answers may part at any gap; the strict ones may not.
    """
    together, alone = (
        answers_of(engines, "static", f"kappas {how}") for how in ("together", "alone")
    )
    pairs = list(zip(alone, together, strict=True))
    equal = [one["token_ids"] == two["token_ids"] for one, two in pairs]
    strict = [pair for number, pair in enumerate(pairs) if KAPPAS[number % len(KAPPAS)] >= 1]
    holds, text = same_tokens(*map(list, zip(*strict, strict=True)), tie)
    text = f"{sum(equal)} of {len(equal)} answers equal; of the strict ones {text}"
    return (all(equal) if device == "cpu" else holds), text


def _sampled(engine: str) -> Callable[..., tuple[bool, str]]:
    def ask(engines: Engines, *_: Any) -> tuple[bool, str]:
        answers = answers_of(engines, engine, "temperatures")
        drawn = [each for each in answers if each["sampling_params"]["temperature"] > 0]
        whole = [one for one in drawn if one["tokens"] > 0 and one["finish"] in ("stop", "length")]
        text = f"{len(whole)} of {len(drawn)} sampled answers are whole"
        return len(whole) == len(drawn) > 0, text

    return ask


def _like_uncaptured(engines: Engines, kappa: float, tie: float, device: str) -> tuple[bool, str]:
    """Our engine's graphs compute what the same passes do without: the kernels are the same."""
    if device == "cpu":
        raise Missing("a CPU has no graphs")
    if not (about := engines.get("embedded", {}).get("server")):
        raise Missing("our engine did not start")
    found = about["captured_deviation"]
    return found <= 1e-2, f"logits at most {found:.2e} of their spread apart"


def _captured(engines: Engines, *_: Any) -> tuple[bool, str]:
    """Every triple of dcs has a state of its own, and more than one of them was drafted."""
    drafted: set[str] = set()
    for name in ("strict", "margin"):
        for answer in answers_of(engines, "dcs", name):
            drafted |= set((answer["adaptivespec"] or {}).get("triples", ()))
    states = engines["dcs"].get("states", ())
    text = (
        f"{len(states)} triples in {sum(state['seconds'] for state in states):.1f} s and "
        f"{sum(state['gigabytes'] for state in states):.2f} GB; {len(drafted)} were drafted"
    )
    return bool(states) and len(drafted) > 1, text


def _overlap(engines: Engines, kappa: float, tie: float, device: str) -> tuple[bool, str]:
    if device == "cpu":
        raise Missing("SGLang schedules speculation on a CPU without overlap")
    servers = {name: engines.get(name, {}).get("server") for name in ("static", "dcs")}
    off = [name for name, about in servers.items() if about and about["disable_overlap_schedule"]]
    if not any(servers.values()):
        raise Missing("no engine with the plugin started")
    return not off, f"off in {', '.join(off)}" if off else "on"


def _like_stock(engines: Engines, *_: Any) -> tuple[bool, str]:
    """The same triple must accept as many tokens, whoever verifies; near ties shift it a little."""
    ours = accept_length(answers_of(engines, "static", "strict"))
    stock = accept_length(answers_of(engines, "stock", "strict"))
    return abs(ours / stock - 1) <= 0.05, f"accept length {ours:.3f}, stock EAGLE3 {stock:.3f}"


_CHECKS: tuple[tuple[str, Callable[..., tuple[bool, str]]], ...] = (
    ("our engine: starts and ends", _starts("embedded")),
    ("our engine: graphs give what uncaptured passes give", _like_uncaptured),
    ("our engine: strict gives the tokens of plain", _equal("embedded", "strict", "embedded")),
    ("our engine: strict is reported lossless", _lossless("embedded")),
    ("our engine: margin raises the accept length", _margin_pays("embedded")),
    ("our engine: no token below its kappa", _within("embedded", "margin")),
    ("our engine: sampled requests among greedy ones", _sampled("embedded")),
    ("no speculation: starts and ends", _starts("plain")),
    ("ADAPTIVESPEC, one triple: starts and ends", _starts("static")),
    ("ADAPTIVESPEC, dcs: starts and ends", _starts("dcs")),
    ("stock EAGLE3: starts and ends", _starts("stock")),
    ("no speculation: a batch gives the same tokens (noise floor)", _equal("plain", "together")),
    ("stock EAGLE3 gives the tokens of no speculation", _equal("stock", "strict")),
    ("strict, one triple, gives the tokens of no speculation", _equal("static", "strict")),
    ("strict, dcs, gives the tokens of no speculation", _equal("dcs", "strict")),
    ("strict, one triple, is reported lossless", _lossless("static")),
    ("strict, dcs, is reported lossless", _lossless("dcs")),
    ("strict, one triple, accepts as much as stock EAGLE3", _like_stock),
    ("margin raises the accept length, one triple", _margin_pays("static")),
    ("margin raises the accept length, dcs", _margin_pays("dcs")),
    ("no token below its kappa, one triple", _within("static", "margin")),
    ("no token below its kappa, dcs", _within("dcs", "margin")),
    ("no token below its own kappa, several in one batch", _within("static", "kappas together")),
    ("several kappas in one batch equal single requests", _kappas),
    ("greedy requests among sampled ones are strict", _equal("dcs", "temperatures")),
    ("sampled requests among greedy ones", _sampled("dcs")),
    ("triples were captured and are switched, dcs", _captured),
    ("overlap scheduling is on", _overlap),
)


def speed(engines: Engines) -> list[dict[str, Any]]:
    """A row for each engine, kappa and batch size that was timed: medians over its repeats."""
    cells: dict[tuple[str, Any, int], list[Mapping[str, Any]]] = {}
    for engine, result in engines.items():
        for done in result.get("passes", {}).values():
            if (label := done["timed"]) and "answers" in done:
                cells.setdefault((engine, label["kappa"], label["batch"]), []).append(done)
    return [
        {
            "engine": engine,
            "kappa": kappa,
            "batch": batch,
            "repeats": len(runs),
            "tokens_per_s": statistics.median(
                sum(answer["tokens"] for answer in run["answers"]) / run["seconds"] for run in runs
            ),
            "accept_length": accept_length(answer for run in runs for answer in run["answers"]),
        }
        for (engine, kappa, batch), runs in cells.items()
    ]
