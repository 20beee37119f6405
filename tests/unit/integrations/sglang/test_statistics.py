import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.stats import Statistics
from adaptivespec.core.verdict import Kind, Verdict
from adaptivespec.integrations.sglang.statistics import RequestStatistics
from adaptivespec.verify.limits import Ledger

TRIPLES = [(5, 4, 16), (3, 1, 4), (1, 1, 2)]


def statistics(**changes):
    return RequestStatistics(
        **{"rule": "margin:kappa=0.2", "policy": "dcs", "lossless": False, **changes}
    )


@st.composite
def rounds(draw):
    """(accepted, regret by depth, triple) of each round of a request."""
    made = []
    for _ in range(draw(st.integers(0, 12))):
        triple = draw(st.sampled_from(TRIPLES))
        accepted = draw(st.integers(0, triple[0]))
        nats = st.one_of(st.just(-1.0), st.sampled_from([0.0, 0.25, 0.5, 1.5]))
        made.append((accepted, draw(st.lists(nats, min_size=5, max_size=5)), triple))
    return made


def add_all(stats, made, start=1):
    """Add the rounds to ``stats``; the output tokens they lead to, the prefill's included."""
    for accepted, regret, triple in made:
        stats.add_round(start, accepted, regret, triple)
        start += accepted + 1
    return start


def naive(made, num_tokens):
    """The figures of the first ``num_tokens`` output tokens, token by token."""
    position, steps, drafts, accepted_per_round = 1, 0, 0, []
    exact, promoted, bonus, per_pos, triples = 0, [], 0, Counter(), Counter()
    for accepted, regret, triple in made:
        if position < num_tokens:
            steps += 1
            drafts += triple[2] - 1
            triples[",".join(str(size) for size in triple)] += 1
            accepted_per_round.append(0)
        for depth in range(accepted + 1):
            if position >= num_tokens:
                return locals()
            if depth == accepted:
                bonus += 1
            else:
                accepted_per_round[-1] += 1
                per_pos[depth] += 1
                if regret[depth] >= 0:
                    promoted.append((position, regret[depth]))
                else:
                    exact += 1
            position += 1
    return locals()


@given(rounds(), st.integers(0, 80))
def test_a_summary_covers_exactly_the_committed_tokens(made, num_tokens):
    stats = statistics()
    add_all(stats, made)
    summary = stats.summary(num_tokens)
    want = naive(made, num_tokens)
    accepted = want["exact"] + len(want["promoted"])
    steps = want["steps"]
    assert summary["num_spec_steps"] == steps
    assert summary["num_draft_tokens"] == want["drafts"]
    assert summary["num_accepted_draft_tokens"] == accepted
    assert summary["num_promoted_tokens"] == len(want["promoted"])
    assert summary["regret_nats"] == pytest.approx(sum(nats for _, nats in want["promoted"]))
    assert summary["accepted_per_pos"] == [want["per_pos"][i] for i in range(len(want["per_pos"]))]
    assert summary["acceptance_histogram"] == {
        str(n): rounds for n, rounds in Counter(want["accepted_per_round"]).items()
    }
    assert summary["triples"] == want["triples"]
    assert [(p["position"], p["regret"]) for p in summary["promotions"]] == want["promoted"]
    if steps:
        assert summary["accept_length"] == pytest.approx((accepted + want["bonus"]) / steps)
        assert summary["acceptance_rate"] == pytest.approx(accepted / want["drafts"])
        assert 0 <= summary["acceptance_rate"] <= 1
        assert summary["mean_tree_nodes"] == pytest.approx((want["drafts"] + steps) / steps)


@given(rounds(), st.lists(st.integers(0, 80)))
def test_summaries_on_the_way_change_nothing(made, stops):
    once, often = statistics(), statistics()
    end = add_all(once, made)
    add_all(often, made)
    for num_tokens in sorted(stops):
        often.summary(num_tokens)
    assert often.summary(max([end, *stops])) == once.summary(max([end, *stops]))


@given(rounds())
def test_a_ledger_can_be_restarted(made):
    """charges and exact_since are what a Ledger that saw every round would hold."""
    stats = statistics()
    end = add_all(stats, made)
    ledger = Ledger(outputs=1, window=1000)
    for accepted, regret, _ in made:
        kinds = [Kind.PROMOTED if nats >= 0 else Kind.EXACT for nats in regret[:accepted]]
        n = accepted + 1
        kinds, drops = [*kinds, Kind.BONUS], [max(nats, 0.0) for nats in regret[:accepted]] + [0.0]
        ledger.record(Verdict(list(range(n)), [7] * n, kinds, drops, [7] * n, [0.0] * n))
    assert stats.charges(end) == list(ledger.charges)
    assert stats.exact_since(end) == ledger.exact_since


def test_a_summary_is_json_and_has_exactly_the_agreed_names():
    stats = statistics()
    stats.add_round(1, 2, [-1.0, 0.5, -1.0], (5, 4, 16))
    stats.add_round(4, 0, [-1.0, -1.0, -1.0], (3, 1, 4))
    summary = stats.summary(5)
    assert summary == {
        "rule": "margin:kappa=0.2",
        "policy": "dcs",
        "lossless": False,
        "accept_length": 2.0,
        "num_spec_steps": 2,
        "num_draft_tokens": 18,
        "num_accepted_draft_tokens": 2,
        "num_promoted_tokens": 1,
        "regret_nats": 0.5,
        "mean_tree_nodes": 10.0,
        "accepted_per_pos": [1, 1],
        "acceptance_rate": 2 / 18,
        "acceptance_histogram": {"0": 1, "2": 1},
        "triples": {"3,1,4": 1, "5,4,16": 1},
        "promotions": [{"position": 2, "margin": math.exp(-0.5), "regret": 0.5}],
    }
    assert json.loads(json.dumps(summary)) == summary
    assert "promotions" not in stats.summary(5, promotions=False)


def test_names_shared_with_the_engine_mean_the_same():
    stats = Statistics()
    stats.count([Kind.EXACT, Kind.PROMOTED, Kind.BONUS], 15, 0.5)
    ours = statistics()
    ours.add_round(1, 2, [-1.0, 0.5], (5, 4, 16))
    details = json.loads(json.dumps(stats.details()))
    summary = ours.summary(4)
    shared = details.keys() & summary.keys()
    assert len(shared) == 10
    assert {name: summary[name] for name in shared} == {name: details[name] for name in shared}


def test_without_a_round_ratios_are_none():
    summary = statistics().summary(1)
    assert (summary["accept_length"], summary["acceptance_rate"]) == (None, None)
    assert (summary["num_spec_steps"], summary["promotions"]) == (0, [])
    assert "NaN" not in json.dumps(summary)


def test_a_lossless_request_needs_no_regrets():
    stats = statistics(rule="strict", lossless=True)
    stats.add_round(1, 3, (), (5, 4, 16))
    summary = stats.summary(5)
    assert (summary["num_accepted_draft_tokens"], summary["num_promoted_tokens"]) == (3, 0)
    assert summary["lossless"] is True


def test_promotions_behind_a_stop_do_not_exist():
    stats = statistics()
    stats.add_round(1, 3, [0.5, -1.0, 0.25], (5, 4, 16))
    stats.add_round(5, 1, [0.125], (5, 4, 16))
    assert stats.summary(3)["promotions"] == [
        {"position": 1, "margin": math.exp(-0.5), "regret": 0.5}
    ]
    assert stats.summary(3)["num_spec_steps"] == 1
    assert stats.exact_since(3)


def test_a_promotion_that_costs_nothing_is_a_promotion():
    stats = statistics()
    stats.add_round(1, 1, [0.0], (5, 4, 16))
    assert stats.summary(3)["num_promoted_tokens"] == 1


def test_a_round_thrown_away_by_a_retraction_is_forgotten():
    """Its place is taken by the token of the second prefill and the rounds that follow."""
    made = [(1, [-1.0] * 5, (5, 4, 16))]
    stats, clean = statistics(), statistics()
    end = add_all(stats, made)
    add_all(clean, made)
    stats.summary(end)
    stats.add_round(end, 3, [0.5, 0.5, 0.5], (5, 4, 16))  # in flight when it was retracted
    for each in (stats, clean):
        each.add_round(end + 1, 2, [-1.0, -1.0], (3, 1, 4))
    assert stats.summary(end + 4) == clean.summary(end + 4)


def test_a_round_noted_ahead_of_its_tokens_waits_for_them():
    stats = statistics()
    stats.add_round(1, 1, [0.5], (5, 4, 16))
    assert stats.summary(1)["num_spec_steps"] == 0
    assert stats.charges(1) == []
    assert stats.summary(3)["num_spec_steps"] == 1


def test_what_was_reported_stays_when_the_host_drops_tokens():
    stats = statistics()
    stats.add_round(1, 1, [0.5], (5, 4, 16))
    assert stats.summary(3) == stats.summary(1)


def test_every_round_is_added_up_once(monkeypatch):
    """The cost of a summary at every chunk is linear in the answer."""
    counted = []
    count = Statistics.count
    monkeypatch.setattr(
        Statistics, "count", lambda self, *step: (counted.append(step), count(self, *step))
    )
    stats = statistics()
    for turn in range(100):
        stats.add_round(1 + 2 * turn, 1, [0.5], (5, 4, 16))
        stats.summary(3 + 2 * turn, promotions=False)
    assert len(counted) == 100


def test_a_summary_without_promotions_does_not_grow_with_the_answer():
    stats = statistics()
    sizes = []
    for turn in range(1000):
        stats.add_round(1 + 2 * turn, 1, [0.5], (5, 4, 16))
        sizes.append(len(json.dumps(stats.summary(3 + 2 * turn, promotions=False))))
    assert sizes[-1] < sizes[0] + 40
