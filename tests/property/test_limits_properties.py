import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from naive_reference import FAST, SLOW, Target, drafter, generate, sampling_of, seeds, settings

from adaptivespec.core.verdict import Kind, Verdict
from adaptivespec.verify.limits import Ledger, Limits, apply_limits
from adaptivespec.verify.margin import MarginOptions, MarginRule

OPEN, CLOSE = 1, 2
MANY = settings(FAST, max_examples=300)

limits = st.builds(
    Limits,
    max_promotions_per_step=st.one_of(st.none(), st.integers(0, 3)),
    exact_between=st.booleans(),
    max_regret=st.one_of(st.none(), st.floats(0, 6)),
    regret_window=st.integers(1, 20),
    skip_tokens=st.integers(0, 5),
    think_only=st.booleans(),
    think_ids=st.just((OPEN, CLOSE)),
)


def random_verdict(rng):
    """A followed path of random kinds; the target's own tokens are told apart by +100."""
    n = rng.randrange(6)
    kinds = [rng.choice([Kind.EXACT, Kind.PROMOTED, Kind.PROMOTED]) for _ in range(n)]
    tokens = [rng.randrange(6) for _ in range(n + 1)]
    drops = [rng.random() * 2 if kind is Kind.PROMOTED else 0.0 for kind in kinds]
    strict = [
        token + 100 if kind is Kind.PROMOTED else token
        for token, kind in zip(tokens, [*kinds, Kind.BONUS], strict=True)
    ]
    path, own = list(range(n + 1)), [0.0] * (n + 1)
    return Verdict(path, tokens, [*kinds, Kind.BONUS], [*drops, 0.0], strict, own)


def allowed(history, step, index, limit):
    """Whether the promotion at ``index`` of ``step`` is allowed, from the whole history."""
    before = [*history, *zip(step.tokens, step.kinds, step.drops, strict=True)][
        : len(history) + index
    ]
    position = len(before)
    if limit.max_promotions_per_step is not None:
        here = step.kinds[:index].count(Kind.PROMOTED)
        if here + 1 > limit.max_promotions_per_step:
            return False
    if limit.exact_between:
        for _, kind, _ in reversed(before):
            if kind is Kind.EXACT:
                break
            if kind is Kind.PROMOTED:
                return False
    if limit.max_regret is not None:
        recent = before[max(0, position - limit.regret_window + 1) :]
        spent = sum(drop for _, kind, drop in recent if kind is Kind.PROMOTED)
        if spent + step.drops[index] > limit.max_regret:
            return False
    if position < limit.skip_tokens:
        return False
    if limit.think_only:
        marks = [token for token, _, _ in before if token in (OPEN, CLOSE)]
        return bool(marks) and marks[-1] == OPEN
    return True


@MANY
@given(seeds, limits)
def test_the_path_is_cut_at_the_first_promotion_that_the_history_forbids(seed, limit):
    rng = random.Random(seed)
    ledger, history = Ledger.start(limit), []
    for _ in range(12):
        step = random_verdict(rng)
        forbidden = [
            index
            for index, kind in enumerate(step.kinds)
            if kind is Kind.PROMOTED and not allowed(history, step, index, limit)
        ]
        done = apply_limits(step, limit, ledger)
        assert done == (step.cut(forbidden[0]) if forbidden else step)
        kept = rng.randrange(len(done.tokens) + 1)  # commit may keep fewer
        ledger.record(done, kept)
        done = done.committed(kept)
        history += zip(done.tokens, done.kinds, done.drops, strict=True)
        assert ledger.outputs == len(history)


@SLOW
@given(seeds, st.floats(0.0, 0.6), st.integers(0, 3), st.floats(0, 3), st.integers(5, 30))
def test_a_whole_run_keeps_its_budgets(seed, kappa, per_step, nats, window):
    options = MarginOptions(
        kappa=kappa,
        max_promotions_per_step=per_step,
        exact_between=seed % 2 == 0,
        max_regret=nats,
        regret_window=window,
        skip_tokens=3,
    )
    params = sampling_of(random.Random(seed))
    steps = generate(Target(seed), MarginRule(options), params, drafter(seed), 20)
    rows = [
        (kind, drop) for done in steps for kind, drop in zip(done.kinds, done.drops, strict=True)
    ]
    assert all(kind is not Kind.PROMOTED for kind, _ in rows[:3])
    assert all(done.num_promoted <= per_step for done in steps)
    for start in range(len(rows)):
        spent = sum(d for kind, d in rows[start : start + window] if kind is Kind.PROMOTED)
        assert spent <= nats + 1e-9
    if options.exact_between:
        drafts = [kind for kind, _ in rows if kind is not Kind.BONUS]
        assert (Kind.PROMOTED, Kind.PROMOTED) not in pairwise(drafts)
