"""Replay against real runs: the same trees, the same walks, the same tokens per step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.core.sampling import SamplingParams
from adaptivespec.engine.engine import Engine
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.base import Outcome, Policy, TreePlan
from adaptivespec.policy.costs import CostProfile
from adaptivespec.replay.arm import Arm
from adaptivespec.replay.records import Records
from adaptivespec.replay.trace_file import Trace, TraceWriter, read_trace
from adaptivespec.verify import RULES, make_rule
from fakes import growing, tiny_engine

COST = CostProfile.parse("box:verify=[[1,10],[8,14],[32,40]],draft=1,overhead=0.5")
#: Options that fit the recordings; a policy that is not named here is taken as it comes.
FITTING = {
    "static": "static:4,3,12",
    "eagle2": "eagle2:3,4,9",
    "medusa": "medusa:positions=[[0],[1],[0,0],[0,1],[1,0],[0,0,0]]",
    "talon": "talon:num_draft_tokens=14,topk=4,num_steps=5",
    "opt_tree": "opt_tree:num_draft_tokens=10,topk=4,num_steps=5",
    "sequoia": "sequoia:acceptance=(0.5,0.2,0.1),num_draft_tokens=9,num_steps=4",
    "bandit": "bandit:arms=((1,1,2),(2,3,5),(3,2,6))",
    "priced": "priced:topk=4,num_steps=5,num_draft_tokens=10",
}
#: Policies whose trees both recordings hold in full; more are welcome.
KNOWN = {"none", "static", "eagle2", "dcs", "medusa", "sequoia"}
PROMPTS = ([3, 9, 4], [27, 1, 44, 12, 8])


class Diary:
    """Every step as a policy sees it. Seconds are left out: no two runs have the same."""

    def __init__(self, policy: Policy, vocabulary: list[int] | None = None) -> None:
        self.rows: list[Any] = []
        self.floats: list[list[float]] = []
        self.vocabulary = vocabulary
        self._observe = policy.observe
        policy.observe = self.note  # type: ignore[method-assign]

    def note(self, plan: TreePlan, outcome: Outcome) -> None:
        self._observe(plan, replace(outcome, seconds={}))
        assert outcome.draft is not None
        tree = outcome.draft.tree
        tokens = tree.token.tolist()
        if self.vocabulary is not None:
            tokens = [self.vocabulary[token] for token in tokens]
        self.rows.append(
            (
                *(plan.triple, tokens, tree.parent.tolist(), list(outcome.path)),
                *(outcome.committed, outcome.num_promoted, outcome.context_len),
            )
        )
        self.floats.append([outcome.root_confidence or 0.0, *tree.logq.tolist()])


def traced(engine: Engine, prompt: list[int], file: Path, **options: Any) -> Trace:
    """Generate into a file, and read it."""
    record, sampling = options.pop("record", None), {"max_tokens": options.pop("max_tokens")}
    stream = engine.stream(prompt, trace=True, record=record, **sampling, **options)
    with TraceWriter(file) as writer:
        writer.begin(engine, stream.result, SamplingParams(**sampling), record)
        for chunk in stream:
            if chunk.step is not None:
                writer.write(chunk.step)
    return read_trace(file)


def policy_for(name: str) -> Policy:
    policy = make_policy(FITTING.get(name, name))
    policy.costs = COST
    return policy


def compare(engine: Engine, traces: list[Trace], name: str, prompts: Any, most: int) -> Arm:
    """Replay a policy, and run it; equal wherever the replay says that it is exact."""
    arm = Arm(make_rule("strict"), policy_for(name), COST)
    real = policy_for(name)
    diary = Diary(real)
    for trace, prompt in zip(traces, prompts, strict=True):
        records = Records(trace)
        replayed = Diary(arm.policy, records.vocabulary.tolist())
        arm.take(records)
        arm.policy.observe = replayed._observe  # type: ignore[method-assign]
        result = engine.generate(prompt, policy=real, max_tokens=most)
        if real.needs_draft and arm.exactness == "exact":
            assert diary.rows == replayed.rows
            for mine, theirs in zip(diary.floats, replayed.floats, strict=True):
                assert mine == pytest.approx(theirs, abs=1e-4)
        diary.rows.clear()
        diary.floats.clear()
        if arm.exactness == "exact":
            assert sum(arm.committed[-1]) == result.completion_tokens - 1
            assert len(arm.committed[-1]) == result.statistics["num_spec_steps"]
    return arm


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, list[Trace]]:
    engine = tiny_engine.engine(eos=(0, 7))
    folder = tmp_path_factory.mktemp("tiny")
    options = {"record": (4, 7), "max_tokens": 24}
    return engine, [
        traced(engine, prompt, folder / f"{i}.jsonl", **options) for i, prompt in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize("name", POLICIES.names())
def test_a_recording_of_the_tiny_model(tiny: tuple[Engine, list[Trace]], name: str) -> None:
    arm = compare(*tiny, name, PROMPTS, 24)
    if name in KNOWN:
        assert arm.exactness == "exact"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, list[Trace]]:
    """A scripted target, and a drafter that is often right."""
    engine = growing.engine(seed=3)
    folder = tmp_path_factory.mktemp("grown")
    options = {"record": (8, 8), "max_tokens": 30}
    return engine, [
        traced(engine, prompt, folder / f"{i}.jsonl", **options)
        for i, prompt in enumerate(([1], [2, 3]))
    ]


@pytest.mark.parametrize("name", POLICIES.names())
def test_a_recording_with_long_walks(grown: tuple[Engine, list[Trace]], name: str) -> None:
    arm = compare(*grown, name, ([1], [2, 3]), 30)
    if name in KNOWN:
        assert arm.exactness == "exact"
        assert name == "none" or (arm.stats.accept_length or 0) > 1.4


MARGIN_RULES = [name for name in RULES.names() if RULES.load(name).signals == "margins"]
# Rules that look at where in the output they are.
PLACED = [f"margin:kappa=0.01,skip_tokens={skip}" for skip in range(1, 14)]


@pytest.mark.parametrize("rule", [*MARGIN_RULES, *PLACED])
@pytest.mark.parametrize("policy", ["static:3,3,8", "dcs"])
def test_a_run_replayed_under_its_own_rule_and_policy(
    tmp_path: Path, rule: str, policy: str
) -> None:
    """Every step of a lossy run comes out as it was, promotions, budgets and memory included."""
    engine = growing.engine(seed=5)
    trace = traced(engine, [2], tmp_path / "t.jsonl", rule=rule, policy=policy, max_tokens=60)
    arm = Arm(make_rule(rule), make_policy(policy))
    arm.take(Records(trace))
    assert arm.committed == [[step.committed for step in trace.steps]]
    assert arm.stats.num_promoted_tokens == sum(step.num_promoted for step in trace.steps)
    assert arm.stats.regret_nats == pytest.approx(sum(step.regret for step in trace.steps))
    if not make_rule(rule).lossless:
        assert arm.stats.num_promoted_tokens > 0
