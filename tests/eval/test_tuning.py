import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.arms import controls, parse_arms
from adaptivespec.eval.bench import Bench, run
from adaptivespec.eval.selection import PerTask, Selection
from adaptivespec.eval.tuning import ROUNDS, matching_rate
from adaptivespec.eval.worker import TargetSpec
from fakes.bench_target import PLACE


@given(st.floats(0.001, 0.4), st.floats(0.3, 3.0), st.floats(0.0, 2.0))
def test_the_rate_converges_where_promotions_grow_with_it(wanted, slope, bend):
    """Promotions per token of a coin: less than proportional, since each moves the text."""

    def promoted(rate):
        tries.append(rate)
        return slope * rate / (1 + bend * rate)

    tries: list[float] = []
    rate = matching_rate(promoted, wanted)
    assert 0 <= rate <= 1
    assert len(tries) <= ROUNDS
    most = slope / (1 + bend)
    best = min(wanted, most)
    assert abs(promoted(rate) - best) < 0.35 * best + 1e-3


def test_no_promotion_anywhere_ends_at_a_rate_without_division_by_zero():
    assert 0 <= matching_rate(lambda rate: 0.0, 0.1) <= 1
    assert matching_rate(lambda rate: 0.2 * rate, 0.0) == 0


def test_the_quickest_tree_is_taken_for_each_rule(tmp_path):
    seconds = {"static:3,2,6": 0.5, "static:5,1,6": 0.6}
    arms = parse_arms("plain; strict/static:tuned; margin:0.2/static:tuned")
    bench = Bench(
        tasks=["capitals"],
        arms=[*arms, *controls("static:tuned")[:1]],
        target=TargetSpec(PLACE, {"seconds": seconds}),
        selection=Selection(PerTask(4), 2, 3),
        restarts=1,
        noise=False,
    )
    settings = run(bench, tmp_path / "run", lambda event: None, lambda text: None)
    resolved = {arm.name: arm.arm() for arm in settings.arms}
    assert resolved["strict/static:tuned"].policy == "static:3,2,6"
    coin = resolved["coin:auto/static:tuned"]
    assert coin.policy == "static:3,2,6"
    assert coin.rule.startswith("coin:")
    assert coin.rule != "coin:auto"


def test_a_coin_without_a_margin_arm_and_tuning_without_items_are_refused(tmp_path):
    arms = [*parse_arms("plain"), *controls("dcs")[:1]]
    bench = Bench(["capitals"], arms, TargetSpec(PLACE), selection=Selection(PerTask(4), 2, 3))
    with pytest.raises(ConfigError, match="copies the promotions"):
        run(bench, tmp_path / "a", lambda event: None, lambda text: None)
    bench = Bench(
        ["capitals"],
        parse_arms("strict/static:tuned"),
        TargetSpec(PLACE),
        selection=Selection(PerTask(4)),
    )
    with pytest.raises(ConfigError, match="no items to tune on"):
        run(bench, tmp_path / "b", lambda event: None, lambda text: None)
