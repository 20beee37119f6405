import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.selection import PerTask, Selection, select


@given(st.integers(1, 130), st.integers(0, 70), st.integers(1, 20), st.integers(0, 3))
def test_dev_items_are_never_asked_and_a_larger_limit_asks_the_same_and_more(
    limit, dev, timed, seed
):
    some = select("capitals", Selection(PerTask(limit), timed, dev, seed=seed), None).settings
    all_ = select("capitals", Selection(PerTask(), timed, dev, seed=seed), None).settings
    assert some.items == all_.items[: len(some.items)]
    assert some.timed == some.items[:timed]
    assert some.dev == all_.dev
    assert not set(all_.dev) & set(all_.items)
    assert len(all_.dev) + len(all_.items) == all_.available
    assert len(set(all_.items)) == len(all_.items)


def test_the_seed_decides_the_order_and_the_digest_knows_the_items():
    one, two = (
        select("lists", Selection(PerTask(10), seed=seed), None).settings for seed in (0, 1)
    )
    again = select("lists", Selection(PerTask(10), seed=0), None).settings
    assert one == again
    assert one.items != two.items
    assert one.digest != two.digest


def test_limits_by_name_beat_the_general_one():
    selection = Selection(PerTask(5, {"lists": 7}))
    assert len(select("lists", selection, None).settings.items) == 7
    assert len(select("capitals", selection, None).settings.items) == 5


def test_no_item_is_an_error():
    with pytest.raises(ConfigError, match="leaves no item"):
        select("lists", Selection(PerTask(0)), None)
