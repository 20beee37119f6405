"""Requests that decode together get what they would get alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec import Engine
from adaptivespec.core.errors import ConfigError, NumericalError
from adaptivespec.engine import batch as batches
from adaptivespec.engine.batch import Batch, Member
from adaptivespec.engine.load import DraftLoad
from adaptivespec.engine.result import Chunk
from adaptivespec.policy.costs import CostProfile
from fakes import scripted, tiny_engine

#: Cheap rows up to eight, dear ones beyond: as a CPU has them.
COSTS = CostProfile("test", ((0, ((1, 3.0), (8, 4.0), (64, 34.0))),), ((1, 0.3),), 0.2)
REQUESTS: list[dict[str, Any]] = [
    {"max_tokens": 1},
    {"max_tokens": 40, "policy": "none"},
    {"max_tokens": 30, "policy": "chain:4", "ignore_eos": True},
    {"max_tokens": 30, "temperature": 1.0, "seed": 3, "policy": "static:3,3,9"},
    {"max_tokens": 30, "temperature": 0.7, "seed": -4, "top_p": 0.9, "rule": "margin:0.3"},
    {"max_tokens": 25, "rule": "margin:0.2", "policy": "dcs", "logprobs": True},
    {"max_tokens": 25, "frequency_penalty": 1.5, "policy": "eagle2:4,2,7", "top_logprobs": 3},
    {"max_tokens": 20, "min_tokens": 12, "policy": "dcs", "trace": True},
    {"max_tokens": 20, "rule": "rejection", "temperature": 1.0, "seed": 8, "policy": "chain:3"},
    {"max_tokens": 30, "stop": ("7 1", "33"), "policy": "thrift"},
    {"max_tokens": 9, "logit_bias": {5: 4.0}, "policy": "sequoia"},
]
PROMPTS = [
    [3],
    [5, 9, 11, 2, 40],
    [7] * 20,
    [9, 8, 7],
    *([*range(1, 50), *tail] for tail in ([], [3, 4], list(range(20, 30)))),
]


def seen(result: Any, statistics: bool) -> dict[str, Any]:
    """What must not depend on company; timings do."""
    about: dict[str, Any] = {
        "ids": result.token_ids,
        "text": result.text,
        "finish": result.finish_reason,
        "stop": result.matched_stop,
        "completion": result.completion_tokens,
        "top": [[id for id, _ in token.top_logprobs] for token in result.tokens],
    }
    if statistics:
        about["statistics"] = result.stats.details() | {"regret_nats": None}
        about["kinds"] = [token.kind for token in result.tokens]
    return about


def same(engine: Engine, found: list[Any], alone: list[Any], statistics: bool = True) -> None:
    """Assert that results are equal; torch rounds a prompt that is read in parts differently."""
    assert [seen(r, statistics) for r in found] == [seen(r, statistics) for r in alone]
    regret = [r.stats.regret_nats if statistics else 0.0 for r in found]
    assert regret == pytest.approx(
        [r.stats.regret_nats if statistics else 0.0 for r in alone], abs=1e-4
    )
    got, want = ([[t.logprob for t in r.tokens] for r in rs] for rs in (found, alone))
    if engine.target.backend == "native":
        assert got == want
    for ours, theirs in zip(got, want, strict=True):
        assert [x or 0.0 for x in ours] == pytest.approx([x or 0.0 for x in theirs], abs=1e-4)


def together(
    engine: Engine, asked: list[tuple[list[int], dict[str, Any], int]], batch: Batch
) -> list[Any]:
    """Results of requests (prompt, options, step at which they join); some sessions are reused."""
    jobs = [engine.job(prompt, **options) for prompt, options, _ in asked]
    late = sorted(range(len(jobs)), key=lambda i: asked[i][2])
    members: dict[Member, int] = {}
    texts = [""] * len(jobs)
    free = [engine.session() for _ in jobs[: len(jobs) // 2 + 1]]
    step = 0
    while late or batch.members:
        while late and free and (asked[late[0]][2] <= step or not batch.members):
            at = late.pop(0)
            members[batch.add(jobs[at], free.pop())] = at
        for member, chunk in batch.step():
            assert chunk is not None, member.error
            texts[members[member]] += chunk.text
            if chunk.result is not None:
                assert member not in batch.members
                free.append(member.session)
        step += 1
    assert texts == [job.result.text for job in jobs]
    return [job.result for job in jobs]


@pytest.fixture(scope="module", params=["torch", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    eos = (0, 17, 23)
    return tiny_engine.engine(eos) if request.param == "torch" else tiny_engine.native(eos)


requests = st.lists(
    st.tuples(st.sampled_from(PROMPTS), st.sampled_from(REQUESTS), st.integers(0, 12)),
    min_size=1,
    max_size=7,
)


@given(asked=requests, rows=st.sampled_from([3, 16, 64]))
@settings(max_examples=8)
def test_company_changes_nothing(engine: Engine, asked: Any, rows: int) -> None:
    alone = [engine.generate(prompt, **options) for prompt, options, _ in asked]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "PROMPT_ROWS", rows)
        found = together(engine, asked, Batch(engine.target))
    same(engine, found, alone)


@given(asked=requests)
@settings(max_examples=8)
def test_drafting_less_in_company_changes_no_answer(engine: Engine, asked: Any) -> None:
    alone = [engine.generate(prompt, **options) for prompt, options, _ in asked]
    found = together(engine, asked, Batch(engine.target, DraftLoad(COSTS)))
    same(engine, found, alone, statistics=False)


def test_a_shared_pass_counts_once(engine: Engine) -> None:
    batch = Batch(engine.target)
    options = {"max_tokens": 10, "ignore_eos": True, "policy": "none"}
    together(engine, [([3, n], options, 0) for n in range(1, 6)], batch)
    # Three slots: three decode together, then two.
    assert batch.passes == 2 * 9


def test_a_long_prompt_does_not_hold_up_who_decodes() -> None:
    engine = tiny_engine.endless()
    batch = Batch(engine.target)
    quick = batch.add(engine.job([1], max_tokens=30), engine.session())
    batch.step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "PROMPT_ROWS", 4)
        slow = batch.add(engine.job(list(range(1, 50)), max_tokens=2), engine.session())
        tokens = quick.job.result.completion_tokens
        for _ in range(5):
            batch.step()
    assert slow.reading
    assert slow.decoder.unread == 49 - 20
    assert quick.job.result.completion_tokens >= tokens + 5


@pytest.mark.parametrize("policy", ["none", "chain:3"])
def test_a_beginning_that_prompts_share_is_read_once(engine: Engine, policy: str) -> None:
    shared = list(range(1, 50))
    options = {"max_tokens": 12, "ignore_eos": True, "policy": policy}
    batch = Batch(engine.target)
    prompts = [[*shared, n, n + 1] for n in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "PROMPT_ROWS", 20)
        members = [batch.add(engine.job(p, **options), engine.session()) for p in prompts]
        while batch.members:
            batch.step()
    assert [member.decoder.cached_tokens for member in members] == [0, 48, 48]
    for member, prompt in zip(members, prompts, strict=True):
        assert member.job.result.token_ids == engine.generate(prompt, **options).token_ids


def test_one_that_drafts_does_not_wait_for_one_that_does_not() -> None:
    engine = tiny_engine.endless()
    batch = Batch(engine.target)
    prompt = list(range(1, 50))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "PROMPT_ROWS", 4)
        batch.add(engine.job(prompt, policy="none", max_tokens=3), engine.session())
        other = batch.add(engine.job(prompt, policy="chain:2", max_tokens=3), engine.session())
        for _ in range(4):
            batch.step()
        assert other.begun


def test_a_copy_that_saves_nothing_is_not_made() -> None:
    engine = tiny_engine.endless()
    session, other = engine.session(), engine.session()
    prompt = list(range(1, 30))
    engine.generate(prompt, session=other, max_tokens=2)
    engine.generate(prompt[:25], session=session, max_tokens=2)
    assert session.borrow(prompt, [other], True) == 24
    assert session.borrow([9, 9, 9], [other], True) == 0


def test_who_leaves_leaves_a_session_that_can_be_used(engine: Engine) -> None:
    batch = Batch(engine.target)
    options = {"max_tokens": 40, "ignore_eos": True, "policy": "chain:3"}
    prompts = [[4, 5], list(range(1, 60)), [9]]
    members = [batch.add(engine.job(p, **options), engine.session()) for p in prompts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "PROMPT_ROWS", 8)
        batch.step()
        batch.step()
    for member in members[:2]:  # one while it decodes, one while its prompt is read
        batch.remove(member)
    while batch.members:
        batch.step()
    assert members[2].job.result.token_ids == engine.generate([9], **options).token_ids
    for member, prompt in zip(members[:2], prompts[:2], strict=True):
        again = engine.generate(prompt, session=member.session, **options)
        assert again.token_ids == engine.generate(prompt, **options).token_ids


def test_one_that_fails_ends_alone() -> None:
    def logits(prefix: tuple[int, ...]) -> list[float]:
        bad = prefix[0] == 9 and len(prefix) > 4
        return [float("nan")] * scripted.VOCAB if bad else scripted.prefer(1 + len(prefix) % 5)

    engine = scripted.engine(logits, lambda prefix: [])
    batch = Batch(engine.target)
    sick = batch.add(engine.job([9], max_tokens=12), engine.session())
    well = batch.add(engine.job([8], max_tokens=12), engine.session())
    ended: dict[Member, Chunk | None] = {}
    while batch.members:
        for member, chunk in batch.step():
            if member not in batch.members:
                ended[member] = chunk
    assert ended[sick] is None
    assert isinstance(sick.error, NumericalError)
    assert sick.session.tokens == []
    assert sick.job.result.completion_tokens == 4
    assert well.job.result.token_ids == engine.generate([8], max_tokens=12).token_ids


def test_one_whose_rows_cannot_be_copied_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine.endless()
    batch = Batch(engine.target)
    prompt, options = list(range(1, 40)), {"max_tokens": 12}
    first = batch.add(engine.job(prompt, **options), engine.session())
    batch.step()

    def fail(*arguments: object) -> bool:
        raise MemoryError

    monkeypatch.setattr(engine.target, "copy", fail)
    second = batch.add(engine.job([*prompt, 50], **options), engine.session())
    while batch.members:
        batch.step()
    assert isinstance(second.error, MemoryError)
    assert second.session.tokens == []
    assert first.error is None
    assert first.job.result.token_ids == engine.generate(prompt, **options).token_ids


def test_a_pass_that_fails_ends_all_who_shared_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine.engine()
    batch = Batch(engine.target)
    members = [batch.add(engine.job([n], max_tokens=12), engine.session()) for n in (1, 2)]
    batch.step()

    def fail(*arguments: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(engine.target, "verify_many", fail)
    assert [chunk for _, chunk in batch.step()] == [None, None]
    assert batch.members == []
    assert all(str(member.error) == "no memory" for member in members)


def test_random_numbers_of_one_do_not_reach_another(engine: Engine) -> None:
    options = {"max_tokens": 30, "temperature": 1.0, "seed": 7, "ignore_eos": True}
    asked = [([5, 6], {**options, "policy": p}, 0) for p in ("none", "chain:3", "static:2,2,4")]
    found = together(engine, asked, Batch(engine.target))
    assert found[0].token_ids == found[1].token_ids == found[2].token_ids


class TestLoad:
    def test_the_fuller_the_pass_the_less_is_drafted(self) -> None:
        load = DraftLoad(COSTS)
        nodes = [load.most_nodes(company) for company in (1, 2, 4, 8, 16)]
        assert nodes == sorted(nodes, reverse=True)
        assert nodes[0] > nodes[-1] == 1

    def test_where_rows_are_free_everyone_drafts(self) -> None:
        flat = CostProfile("gpu", ((0, ((1, 20.0), (512, 21.0))),), ((1, 0.5),), 0.1)
        assert DraftLoad(flat).most_nodes(8) > 2

    def test_it_learns_how_often_drafts_are_accepted(self) -> None:
        engine = scripted.engine(lambda p: scripted.prefer(5), lambda p: scripted.chain(5, 5))
        good = DraftLoad(COSTS)
        asked = [([n], {"max_tokens": 200, "policy": "chain:2"}, 0) for n in (1, 2)]
        together(engine, asked, Batch(engine.target, good))
        engine = scripted.engine(lambda p: scripted.prefer(5), lambda p: scripted.chain(6, 6))
        bad = DraftLoad(COSTS)
        together(engine, asked, Batch(engine.target, bad))
        assert bad.acceptance < 0.6 < good.acceptance
        assert bad.most_nodes(2) <= good.most_nodes(2)

    def test_a_busy_host_makes_fewer_and_larger_steps_worth_more(self) -> None:
        load = DraftLoad(COSTS)
        before = load.most_nodes(4)
        for _ in range(400):
            load.observe_host(4 * 5.0, 4)
        assert load.host_s == pytest.approx(5.0, rel=0.01)
        assert load.most_nodes(4) > before

    @pytest.mark.parametrize(
        ("options", "every", "drafts"),
        [
            ({}, False, False),
            ({"temperature": 1.0, "seed": 1}, False, False),
            ({"rule": "rejection", "policy": "chain:3", "seed": 2}, False, False),
            ({"rule": "margin:0.5"}, False, True),
            ({"rule": "rejection", "temperature": 1.0, "policy": "chain:3"}, False, True),
            ({"rule": "margin:0.5"}, True, False),
        ],
    )
    def test_whose_tokens_depend_on_it_drafts_as_ever(
        self, options: dict[str, Any], every: bool, drafts: bool
    ) -> None:
        engine = tiny_engine.endless()
        batch = Batch(engine.target, DraftLoad(COSTS, every_rule=every))
        asked = {"policy": "chain:3", **options, "max_tokens": 12}
        crowd = [([n], asked, 0) for n in range(1, 40)]
        found = together(engine, crowd, batch)
        assert all((r.stats.num_draft_tokens > 0) == drafts for r in found[:8])

    def test_a_job_may_insist_on_its_policy(self) -> None:
        engine = tiny_engine.endless()
        batch = Batch(engine.target, DraftLoad(COSTS))
        jobs = [engine.job([n], policy="chain:3", max_tokens=12) for n in range(1, 20)]
        for job in jobs[:5]:
            job.follows_load = False
        for job in jobs:
            batch.add(job, engine.session())
        while batch.members:
            batch.step()
        drafted = [job.result.stats.num_draft_tokens for job in jobs]
        assert min(drafted[:5]) > 0 == max(drafted[5:])


def test_ids_outside_the_vocabulary_are_refused_with_the_job() -> None:
    engine = tiny_engine.engine()
    for options in ({"logit_bias": {61: 1.0}}, {"stop_token_ids": (61,)}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            engine.job([1], **options)


def test_rules_for_thinking_are_refused_with_the_job_where_nobody_thinks() -> None:
    with pytest.raises(ConfigError, match="thinking"):
        tiny_engine.engine().job([1], rule="relaxed", rule_options={"think_only": True})


@pytest.mark.parametrize("count", [-1, 21])
def test_alternatives_are_bounded(count: int) -> None:
    with pytest.raises(ConfigError, match="top_logprobs"):
        tiny_engine.engine().job([1], top_logprobs=count)


def test_alternatives_are_the_likeliest_and_hold_the_token_at_temperature_zero() -> None:
    engine = tiny_engine.endless()
    result = engine.generate([4, 4], top_logprobs=4, max_tokens=20, policy="chain:3")
    for token in result.tokens:
        ids, values = zip(*token.top_logprobs, strict=True)
        assert len(set(ids)) == 4
        assert list(values) == sorted(values, reverse=True)
        assert token.top_logprobs[0] == (token.token_id, token.logprob)
