import math

import pytest
import torch

from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Kind, Verdict, follow, reached, verdict

E, P, B = Kind.EXACT, Kind.PROMOTED, Kind.BONUS

#        0
#      1   2
#     3 4  5
#     6
TREE = DraftTree.from_parents([9, 1, 2, 3, 4, 5, 6], [-1, 0, 0, 1, 1, 2, 3])


def i64(*values):
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize(
    ("tokens", "path", "bonus"),
    [
        ((7, 3, 5, 6, 0, 0, 8), [0], 7),
        ((1, 7, 5, 6, 0, 0, 8), [0, 1], 7),
        ((1, 3, 5, 7, 0, 0, 8), [0, 1, 3], 7),
        ((1, 3, 5, 6, 0, 0, 8), [0, 1, 3, 6], 8),
        ((2, 3, 5, 6, 0, 7, 8), [0, 2, 5], 7),
        ((2, 3, 4, 6, 0, 7, 8), [0, 2], 4),  # 4 is a token of the tree, but not under node 2
    ],
)
def test_follow(tokens, path, bonus):
    walked = follow(TREE, i64(*tokens))
    assert walked.path.tolist() == path + [-1] * (4 - len(path))
    assert (int(walked.length), int(walked.bonus)) == (len(path), bonus)
    assert reached(TREE, i64(*tokens)).nonzero().flatten().tolist() == path


def test_follow_of_a_root_alone():
    walked = follow(DraftTree.root_only(3), i64(5))
    assert (walked.path.tolist(), int(walked.length), int(walked.bonus)) == ([0], 1, 5)


def test_padding_is_never_followed():
    batch = DraftTree.pad_stack([TREE, DraftTree.chain([9, 1])])
    tokens = torch.stack([i64(1, 3, 5, 6, 0, 0, 8), i64(1, -1, -1, -1, -1, -1, -1)])
    walked = follow(batch, tokens)
    assert walked.path.tolist() == [[0, 1, 3, 6], [0, 1, -1, -1]]
    assert walked.length.tolist() == [4, 2]
    assert walked.bonus.tolist() == [8, -1]


def choice(target, tokens, child=0.0, own=0.0):
    n = TREE.num_nodes
    child_drop = torch.full((n,), float(child))
    child_drop[0] = math.inf
    return Choice(i64(*target), i64(*tokens), child_drop, torch.full((n,), float(own)))


def walked():
    """Root: exact 1; node 1: target 0, promoted 3; node 3: exact 6; bonus 8."""
    return verdict(TREE, choice((1, 0, 5, 6, 0, 0, 8), (1, 3, 5, 6, 0, 0, 8), child=0.5, own=0.25))


def test_verdict():
    v = walked()
    assert v.path == [0, 1, 3, 6]
    assert v.tokens == [1, 3, 6, 8]
    assert v.kinds == [E, P, E, B]
    assert v.drops == [0.5, 0.5, 0.5, 0.25]
    assert v.strict == [1, 0, 6, 8]
    assert v.strict_drops == [0.25] * 4
    assert v.margins == pytest.approx([math.exp(-0.5)] * 3 + [math.exp(-0.25)])
    assert (v.bonus, v.num_accepted, v.num_promoted, v.regret) == (8, 3, 1, 0.5)
    assert all(isinstance(token, int) for token in v.tokens + v.strict + v.path)


def test_verdict_of_a_root_alone():
    n1 = torch.zeros(1)
    v = verdict(DraftTree.root_only(1), Choice(i64(4), i64(4), n1 + math.inf, n1))
    assert (v.path, v.tokens, v.kinds, v.margins, v.regret) == ([0], [4], [B], [1.0], 0.0)


def test_large_ids_and_odd_drops_reach_the_host_exactly():
    drop = torch.tensor([math.inf, 0.1])
    tree = DraftTree.chain([1, 2**40 + 1])
    v = verdict(tree, Choice(i64(2**40 + 1, 3), i64(2**40 + 1, 3), drop, torch.tensor([0.0, 0.3])))
    assert v.tokens == [2**40 + 1, 3]
    assert v.drops == [float(drop[1]), float(torch.tensor(0.3))]


@pytest.mark.parametrize(
    ("keep", "path", "tokens", "kinds", "drops"),
    [
        (0, [0], [1], [B], [0.25]),
        (1, [0, 1], [1, 0], [E, B], [0.5, 0.25]),
        (2, [0, 1, 3], [1, 3, 6], [E, P, B], [0.5, 0.5, 0.25]),
    ],
)
def test_cut_ends_with_the_targets_own_token(keep, path, tokens, kinds, drops):
    v = walked().cut(keep)
    assert (v.path, v.tokens, v.kinds, v.drops) == (path, tokens, kinds, drops)
    assert len(v.strict) == len(v.strict_drops) == len(tokens)
    assert v.bonus == tokens[-1]


def test_cut_of_everything_is_the_same_verdict():
    v = walked()
    assert v.cut(3) is v
    for keep in (-1, 4):
        with pytest.raises(ValueError, match="keep_nodes"):
            v.cut(keep)


@pytest.mark.parametrize(
    ("kept", "accepted", "promoted", "regret"),
    [(0, 0, 0, 0.0), (1, 1, 0, 0.0), (2, 2, 1, 0.5), (3, 3, 1, 0.5), (4, 3, 1, 0.5)],
)
def test_committed_counts_only_what_was_kept(kept, accepted, promoted, regret):
    v = walked().committed(kept)
    assert len(v.tokens) == len(v.kinds) == len(v.drops) == len(v.strict) == kept
    assert (v.num_accepted, v.num_promoted, v.regret) == (accepted, promoted, regret)
    assert v.bonus == (8 if kept == 4 else None)
    with pytest.raises(ValueError, match="kept"):
        walked().committed(5)


def test_a_margin_that_underflows_keeps_its_regret():
    v = Verdict([0, 1], [3, 4], [P, B], [2000.0, 0.0], [5, 4], [0.0, 0.0])
    assert v.margins == [0.0, 1.0]
    assert v.regret == 2000.0
