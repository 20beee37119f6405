import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.verdict import Kind, Verdict
from adaptivespec.verify.limits import Ledger, Limits, apply_limits

E, P, B = Kind.EXACT, Kind.PROMOTED, Kind.BONUS
OPEN, CLOSE = 50, 51


def run(kinds, drop=1.0, tokens=None):
    """A verdict with these kinds, a bonus added; the target's own tokens are 100, 101, ..."""
    kinds = [*kinds, B]
    n = len(kinds)
    drops = [drop if kind is P else 0.0 for kind in kinds]
    tokens = list(range(n)) if tokens is None else [*tokens, 9]
    strict = [100 + i for i in range(n)]
    return Verdict(list(range(n)), tokens, kinds, drops, strict, [0.0] * n)


def kept(verdict, limits, ledger=None):
    """How many drafts are still followed."""
    return apply_limits(verdict, limits, ledger or Ledger()).num_accepted


def test_no_limits_change_nothing():
    verdict = run([P, P, E])
    assert apply_limits(verdict, None, Ledger()) is verdict
    assert apply_limits(verdict, Limits(), Ledger()) is verdict
    assert not Limits().any


def test_the_token_after_a_cut_is_the_targets_own():
    cut = apply_limits(run([E, P, E]), Limits(max_promotions_per_step=0), Ledger())
    assert cut.tokens == [0, 101]
    assert cut.kinds == [E, B]


@pytest.mark.parametrize(("most", "expected"), [(0, 1), (1, 3), (2, 4), (3, 6), (None, 6)])
def test_promotions_per_step(most, expected):
    limits = Limits(max_promotions_per_step=most, skip_tokens=0)
    assert kept(run([E, P, E, P, P, E]), limits) == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [([P, E, P], 3), ([P, P], 1), ([E, P, P, E], 2), ([P, E, P, P], 3), ([E, E], 2)],
)
def test_an_exact_match_between_two_promotions(kinds, expected):
    assert kept(run(kinds), Limits(exact_between=True)) == expected


def test_exact_between_holds_across_steps_and_a_bonus_is_no_match():
    limits, ledger = Limits(exact_between=True), Ledger()
    first = run([E, P])
    ledger.record(first, 3)
    assert kept(run([P]), limits, ledger) == 0
    ledger.record(run([]), 1)  # a step with a bonus only
    assert kept(run([P]), limits, ledger) == 0
    assert kept(run([E, P]), limits, ledger) == 2
    ledger.record(run([E]), 2)
    assert kept(run([P]), limits, ledger) == 1


@pytest.mark.parametrize(
    ("budget", "expected"), [(0.0, 0), (0.9, 0), (1.0, 1), (1.9, 1), (2.0, 3), (9.0, 4)]
)
def test_regret_budget(budget, expected):
    assert kept(run([P, P, E, P]), Limits(max_regret=budget)) == expected


def test_a_promotion_of_no_regret_is_free():
    assert kept(run([P, P], drop=0.0), Limits(max_regret=0.0)) == 2


def test_regret_window():
    limits = Limits(max_regret=1.0, regret_window=4)
    ledger = Ledger.start(limits)
    ledger.record(run([P, E, E]), 4)  # the charge is at output position 0
    assert kept(run([P]), limits, ledger) == 1  # position 4: positions 1..4 are in the window
    early = Ledger.start(limits)
    early.record(run([P, E]), 3)
    assert kept(run([P]), limits, early) == 0  # position 3: 0..3
    assert kept(run([E, P]), limits, early) == 2  # position 4


def test_old_charges_are_forgotten():
    ledger = Ledger.start(Limits(max_regret=1.0, regret_window=4))
    for _ in range(50):
        ledger.record(run([P, E]), 3)
    assert len(ledger.charges) <= 2
    assert (ledger.num_promoted, ledger.regret, ledger.outputs) == (50, 50.0, 150)


@pytest.mark.parametrize(("outputs", "expected"), [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_skip_tokens(outputs, expected):
    ledger = Ledger(outputs=outputs)
    assert kept(run([E, P, E]), Limits(skip_tokens=3), ledger) == expected


def test_only_while_thinking():
    limits = Limits(think_only=True, think_ids=(OPEN, CLOSE))
    ledger = Ledger.start(limits)
    assert kept(run([P]), limits, ledger) == 0
    assert kept(run([E, P], tokens=[OPEN, 3]), limits, ledger) == 2
    ledger.record(run([E, E], tokens=[OPEN, 3]), 3)
    assert ledger.in_think
    assert kept(run([P, E, P], tokens=[3, CLOSE, 4]), limits, ledger) == 2
    ledger.record(run([E], tokens=[CLOSE]), 2)
    assert not ledger.in_think


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [([], False), ([OPEN], True), ([OPEN, 1, CLOSE], False), ([OPEN, CLOSE, 2, OPEN, 3], True)],
)
def test_a_prompt_may_end_inside_a_thinking_section(prompt, inside):
    ledger = Ledger.start(Limits(think_only=True), prompt, (OPEN, CLOSE))
    assert ledger.in_think is inside


def test_think_only_needs_thinking_tokens():
    with pytest.raises(ConfigError, match="no thinking tokens"):
        Ledger.start(Limits(think_only=True), [1, 2], None)
    Ledger.start(Limits(), [1, 2], None)


def test_what_commit_removed_is_not_recorded():
    ledger = Ledger()
    ledger.record(run([E, P, P]), 2)
    assert (ledger.outputs, ledger.num_promoted, ledger.exact_since) == (2, 1, False)
    whole = Ledger()
    whole.record(run([E, P, P]))
    assert (whole.outputs, whole.num_promoted) == (4, 2)


def test_apply_limits_only_reads_the_ledger():
    ledger = Ledger.start(Limits(max_regret=5.0))
    ledger.record(run([P]), 2)
    before = (ledger.outputs, list(ledger.charges), ledger.exact_since, ledger.regret)
    apply_limits(run([P, E, P]), Limits(max_regret=5.0, exact_between=True), ledger)
    assert before == (ledger.outputs, list(ledger.charges), ledger.exact_since, ledger.regret)
