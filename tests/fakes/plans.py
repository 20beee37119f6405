"""Any plan, within sizes that keep a test quick."""

from hypothesis import strategies as st

from adaptivespec.policy.acceptance import Calibration
from adaptivespec.policy.plan import Keep, Lookahead, Stop, TreePlan


def calibrated(deep, rank, followed, labels):
    """Counts of one depth and rank, in all bins of q."""
    calibration = Calibration()
    first = (deep * 3 + rank) * 10
    calibration.follows[first : first + 10] = followed
    calibration.labels[first : first + 10] = labels
    return calibration.acceptance(0.5)


@st.composite
def plans(draw):
    """Any plan, within sizes that keep a test quick."""
    share = st.sampled_from([0.0, 0.01, 0.3, 1.0])
    keep = Keep(
        width=draw(st.none() | st.integers(1, 8)),
        relative=draw(share),
        absolute=draw(share),
        drop=draw(st.booleans()),
    )
    ahead = Lookahead((0.5, 0.3), (draw(st.floats(0, 0.5)), 0.6))
    stop = Stop(
        min_confidence=draw(share),
        min_path=draw(share),
        min_gain=draw(st.none() | st.floats(0, 1)),
        full=draw(st.booleans()),
        lookahead=draw(st.none() | st.just(ahead)),
    )
    sizes = draw(st.sets(st.integers(1, 24), max_size=4))
    counts = (draw(st.integers(0, 3)), draw(st.integers(0, 2)), 9.0, 10.0)
    if draw(st.integers(0, 3)) == 0:
        nodes = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1))
        closed = {tuple(node[:depth]) for node in nodes for depth in range(1, len(node) + 1)}
        return TreePlan.fixed(tuple(sorted(closed))).capped(draw(st.integers(1, 6)))
    return TreePlan(
        draw(st.integers(0, 5)),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 24)),
        keep=draw(st.just(Keep()) | st.just(keep)),
        stop=draw(st.just(Stop()) | st.just(stop)),
        prices=tuple((size, size * 0.1) for size in sorted(sizes)),
        acceptance=draw(st.none() | st.just(calibrated(*counts))),
    )
