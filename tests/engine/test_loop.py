"""The decode loop on scripted parts: what is committed, counted and remembered."""

from __future__ import annotations

import random

import pytest
import torch

from adaptivespec.core.errors import ConfigError, ContextLengthError, NumericalError, PromptError
from adaptivespec.core.verdict import Kind
from fakes.scripted import EOS, VOCAB, Prefix, chain, engine, prefer

STATIC = {"policy": "static", "policy_options": {"num_steps": 5, "topk": 3, "num_draft_tokens": 16}}
A, B, C, D, E = 1, 2, 3, 4, 5


def script(*answer: int):
    """A target that says `answer` after the prompt (A,) whatever was said before."""

    def logits(prefix: Prefix) -> list[float]:
        place = len(prefix) - 1
        return prefer(answer[place] if place < len(answer) else EOS)

    return logits


def oracle(answer: tuple[int, ...], depth: int):
    """A drafter that drafts the next `depth` tokens of `answer`."""
    return lambda prefix: chain(*answer[len(prefix) :][:depth])


def random_logits(seed: int):
    """Integer logits that depend on the last three tokens, with many ties."""

    def logits(prefix: Prefix) -> list[float]:
        rng = random.Random(f"{seed}-{prefix[-3:]}")
        return [float(rng.randint(0, 5)) for _ in range(VOCAB)]

    return logits


def random_nodes(seed: int):
    """A random tree of up to 12 nodes, siblings distinct."""

    def nodes(prefix: Prefix) -> list[tuple[int, int]]:
        rng = random.Random(f"{seed}/{prefix}")
        made: list[tuple[int, int]] = []
        for _ in range(rng.randint(0, 12)):
            node = (rng.randrange(VOCAB), rng.randint(-1, len(made) - 1))
            if node not in made:
                made.append(node)
        return made

    return nodes


def test_a_run_is_followed_to_the_end_and_eos_is_not_text() -> None:
    answer = (B, C, D, E, EOS)
    e = engine(script(*answer), oracle((*answer, A, A), 7))
    result = e.generate([A], **STATIC)
    assert result.token_ids == [B, C, D, E]
    assert result.text == "bcde"
    assert (result.finish_reason, result.matched_stop) == ("stop", EOS)
    assert result.usage == {"prompt_tokens": 1, "completion_tokens": 5}
    kinds = [token.kind for token in result.tokens]
    assert kinds == [Kind.BONUS, Kind.EXACT, Kind.EXACT, Kind.EXACT]
    assert result.statistics["num_spec_steps"] == 1


def test_eos_inside_a_run_ends_cache_usage_and_statistics_there() -> None:
    # The drafter goes on after EOS and the target would follow it.
    e = engine(script(B, C, EOS, D, D, D), oracle((B, C, EOS, D, D, D), 6))
    session = e.session()
    result = e.generate([A], session=session, **STATIC)
    assert result.token_ids == [B, C]
    assert result.usage["completion_tokens"] == 3
    assert session.tokens == [A, B, C, EOS]
    assert e.target.length(session.cache) == 4
    assert result.statistics["num_accepted_draft_tokens"] == 2
    assert result.statistics["accept_length"] == 2.0
    # The next turn on this session equals a fresh one.
    turn = [A, B, C, EOS, A]
    again = e.generate(turn, session=session, **STATIC)
    assert again.to_json()["token_ids"] == e.generate(turn, **STATIC).token_ids


@pytest.mark.parametrize("most", range(1, 10))
def test_max_tokens_is_exact(most: int) -> None:
    answer = (B,) * 20
    e = engine(script(*answer), oracle(answer, 4))
    result = e.generate([A], max_tokens=most, **STATIC)
    assert len(result.token_ids) == most
    assert result.finish_reason == "length"
    assert result.completion_tokens == most
    assert e.drafter.drafts == (most > 2) + (most > 7)
    assert e.target.passes == -(-(most - 1) // 5)


def test_max_tokens_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_tokens"):
        engine(script(B), oracle((), 1)).generate([A], max_tokens=0)


def test_stop_strings_across_steps_are_never_shown() -> None:
    answer = (C, A, B, D, EOS)
    e = engine(script(*answer), oracle(answer, 1))
    shown = ""
    stream = e.stream([A], stop=["ab"], **STATIC)
    for chunk in stream:
        shown += chunk.text
        assert "a" not in shown
    assert shown == stream.result.text == "c"
    assert stream.result.token_ids == [C, A, B]
    assert stream.result.matched_stop == "ab"


@pytest.mark.parametrize("block", range(10))
def test_strict_equals_plain_over_random_trees(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        e = engine(random_logits(seed), random_nodes(seed))
        plain = e.generate([A, B], policy="none", max_tokens=24)
        strict = e.generate([A, B], max_tokens=24, **STATIC)
        assert strict.token_ids == plain.token_ids
        assert strict.finish_reason == plain.finish_reason
        assert strict.lossless


@pytest.mark.parametrize("seed", range(20))
def test_a_seeded_request_does_not_depend_on_its_trees(seed: int) -> None:
    e = engine(random_logits(seed), random_nodes(seed))
    options = {"temperature": 0.8, "top_p": 0.9, "seed": seed, "max_tokens": 30}
    plain = e.generate([A], policy="none", **options)
    assert e.generate([A], **options, **STATIC).token_ids == plain.token_ids
    assert e.generate([A], policy="none", **options).token_ids == plain.token_ids


def test_penalties_count_the_path_of_each_node_only() -> None:
    e = engine(lambda prefix: prefer(C, D, E), lambda prefix: [(C, -1), (C, 0), (D, -1), (D, 1)])
    options = {"frequency_penalty": 2.0, "max_tokens": 12}
    plain = e.generate([A], policy="none", **options)
    assert e.generate([A], **options, **STATIC).token_ids == plain.token_ids
    assert len(set(plain.token_ids)) > 1


def test_min_tokens_masks_eos_on_the_first_positions_only() -> None:
    e = engine(lambda prefix: prefer(EOS, B), lambda prefix: chain(B, B, B, B))
    result = e.generate([A], min_tokens=3, max_tokens=9, **STATIC)
    assert result.token_ids == [B, B, B]
    assert result.finish_reason == "stop"
    forever = e.generate([A], ignore_eos=True, max_tokens=7, **STATIC)
    assert forever.completion_tokens == 7
    assert forever.finish_reason == "length"


def test_margin_promotes_and_strict_prefix_is_shared() -> None:
    def logits(prefix: Prefix) -> list[float]:
        return prefer(B, C)  # C has margin exp(-1) = 0.37

    e = engine(logits, lambda prefix: chain(C, B, C))
    lossy = e.generate([A], rule="margin", kappa=0.2, max_tokens=9, **STATIC)
    assert not lossy.lossless
    assert lossy.rule.startswith("margin")
    kinds = [token.kind for token in lossy.tokens]
    assert kinds[:5] == [Kind.BONUS, Kind.PROMOTED, Kind.EXACT, Kind.PROMOTED, Kind.BONUS]
    assert lossy.tokens[1].margin == pytest.approx(0.3679, abs=1e-4)
    assert lossy.statistics["num_promoted_tokens"] == 4
    assert lossy.statistics["regret_nats"] == pytest.approx(4.0, abs=1e-4)
    tight = e.generate([A], rule="margin", kappa=0.5, max_tokens=9, **STATIC)
    assert tight.statistics["num_promoted_tokens"] == 0
    assert tight.token_ids == e.generate([A], policy="none", max_tokens=9).token_ids
    one = e.generate(
        [A], rule="margin", rule_options={"max_promotions_per_step": 1}, max_tokens=9, **STATIC
    )
    assert all(step <= 1 for step in _promotions_per_step(one))


def _promotions_per_step(result) -> list[int]:  # type: ignore[no-untyped-def]
    steps: list[int] = [0]
    for token in result.tokens:
        steps[-1] += token.kind is Kind.PROMOTED
        if token.kind is Kind.BONUS:
            steps.append(0)
    return steps


def test_the_target_is_never_overridden_at_the_end() -> None:
    e = engine(lambda prefix: prefer(EOS, C), lambda prefix: chain(C, C))
    result = e.generate([A], rule="margin", kappa=0.0, min_tokens=1, max_tokens=9, **STATIC)
    assert result.token_ids == [C]  # EOS is masked once, then it ends the text
    assert result.statistics["num_promoted_tokens"] == 0


def test_metrics_of_the_known_case() -> None:
    # drafted 4, 4, 4; accepted 4, 0, 1 with EOS first
    answer = (B, C, C, C, C, D, E, EOS)
    drafts = {1: (C, C, C, C), 6: (A, A, A, A), 7: (EOS, A, A, A)}
    e = engine(script(*answer), lambda prefix: chain(*drafts[len(prefix)]))
    result = e.generate([A], trace=True, **STATIC)
    assert [step.committed for step in result.trace] == [5, 1, 1]
    assert result.statistics["accept_length"] == pytest.approx(7 / 3)
    assert result.stats.acceptance_rate == pytest.approx(5 / 12)
    assert result.stats.acceptance_histogram == {4: 1, 0: 1, 1: 1}
    assert result.statistics["accepted_per_pos"] == [2, 1, 1, 1]
    assert result.completion_tokens == 8


def test_no_steps_give_none() -> None:
    result = engine(script(B), oracle((), 1)).generate([A], max_tokens=1)
    assert result.statistics["accept_length"] is None
    assert result.statistics["num_spec_steps"] == 0


def test_context_end_is_length() -> None:
    e = engine(script(*(B,) * 50), oracle((B,) * 50, 5), max_model_len=12)
    result = e.generate([A], max_tokens=40, **STATIC)
    assert result.finish_reason == "length"
    assert len(result.token_ids) == 12  # the last token needs no row of its own
    plain = e.generate([A], max_tokens=40, policy="none")
    assert plain.token_ids == result.token_ids
    with pytest.raises(ContextLengthError, match="12"):
        e.generate([A] * 12)


@pytest.mark.parametrize("prompt", ["", "  \n", []])
def test_empty_prompts(prompt) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PromptError, match="empty"):
        engine(script(B), oracle((), 1)).generate(prompt)


@pytest.mark.parametrize("prompt", [[99], [-1], ["a"]])
def test_foreign_ids(prompt) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PromptError, match="token id"):
        engine(script(B), oracle((), 1)).generate(prompt)


def test_unknown_options_list_what_exists() -> None:
    e = engine(script(B), oracle((), 1))
    with pytest.raises(ConfigError, match="temperature"):
        e.generate([A], temprature=1)
    with pytest.raises(ConfigError, match="strict"):
        e.generate([A], rule="lenient")
    with pytest.raises(ConfigError, match="eagle2"):
        e.generate([A], policy="huge")
    with pytest.raises(ConfigError, match="policy_options"):
        e.generate([A], policy_options={"num_steps": 3})


def test_nan_is_an_error_with_its_place() -> None:
    def logits(prefix: Prefix) -> list[float]:
        row = prefer(B)
        if len(prefix) == 3:
            row[4] = float("nan")
        return row

    e = engine(logits, lambda prefix: chain(B, B))
    with pytest.raises(NumericalError) as caught:
        e.generate([A], **STATIC)
    assert (caught.value.step, caught.value.node) == (0, 1)


def test_an_error_within_a_step_empties_the_session() -> None:
    answer = (B, C, D, E, B, C, D, E)
    e = engine(script(*answer), oracle(answer, 2))
    session = e.session()
    commit = e.target.commit

    def interrupt(cache, path) -> None:  # type: ignore[no-untyped-def]
        commit(cache, path)
        raise KeyboardInterrupt

    e.target.commit = interrupt
    with pytest.raises(KeyboardInterrupt):
        e.generate([A], session=session, **STATIC)
    e.target.commit = commit
    assert session.tokens == []
    assert e.target.length(session.cache) == 0
    again = e.generate([A], session=session, max_tokens=8, **STATIC)
    assert again.token_ids == list(answer)


def test_leaving_early_keeps_what_there_is() -> None:
    answer = (B, C, D, E) * 5
    e = engine(script(*answer), oracle(answer, 2))
    stream = e.stream([A], max_tokens=20, **STATIC)
    next(stream)
    next(stream)
    stream.close()
    passes = e.target.passes
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.token_ids == [B, C, D, E]
    assert stream.result.text == "bcde"
    assert list(stream) == []
    assert e.target.passes == passes


def test_interleaved_requests_equal_their_solo_runs() -> None:
    options = [
        {"max_tokens": 9, **STATIC},
        {"temperature": 1.0, "seed": 3, "max_tokens": 17, "policy": "chain:2"},
        {"rule": "margin", "kappa": 0.3, "max_tokens": 13, **STATIC},
    ]
    e = engine(random_logits(7), random_nodes(7))
    prompts = [[A], [B, C], [D, E, A]]
    solo = [e.generate(p, **o).token_ids for p, o in zip(prompts, options, strict=True)]
    streams = [e.stream(p, **o) for p, o in zip(prompts, options, strict=True)]
    open_streams = list(streams)
    while open_streams:
        open_streams = [s for s in open_streams if next(s, None) is not None]
    assert [s.result.token_ids for s in streams] == solo


def test_logprobs_are_the_targets() -> None:
    e = engine(lambda prefix: prefer(B, C), lambda prefix: chain(C, B))
    result = e.generate([A], rule="margin", kappa=0.2, logprobs=True, max_tokens=4, **STATIC)
    want = torch.tensor(prefer(B, C)).log_softmax(-1)
    for token in result.tokens:
        assert token.logprob == pytest.approx(float(want[token.token_id]), abs=1e-5)
    assert e.generate([A], max_tokens=4).tokens[0].logprob is None


def test_a_policy_that_rests_does_not_ask_the_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = (B, C, D, E) * 12
    wrong = [A] * 60
    e = engine(script(*answer, EOS), lambda prefix: chain(*wrong[:3]))
    assert e.drafter is not None
    asked = 0
    confidence = e.drafter.confidence

    def counted(state: object) -> float:
        nonlocal asked
        asked += 1
        return confidence(state)

    monkeypatch.setattr(e.drafter, "confidence", counted)
    result = e.generate([A], policy="thrift:rest=4,longest=4", max_tokens=40, trace=True)
    assert result.token_ids == list(answer[:40])
    drafted = [step for step in result.trace if step.root_confidence is not None]
    assert asked == len(drafted)
    assert 0 < asked < len(result.trace) / 2
    assert all(step.num_verified == 0 for step in result.trace if step not in drafted)
