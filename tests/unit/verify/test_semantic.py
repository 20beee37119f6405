"""`semantic` is `judge` with the drafter's feature beside the target's."""

from dataclasses import replace

import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.core.law import greedy_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.probe import Probe
from fakes import tiny_engine

V = 8
# Two children of the root, and one of node 1 and node 2 each.
TREE = DraftTree.from_parents([7, 1, 2, 3, 4], [-1, 0, 0, 1, 2])
HIDDEN = torch.tensor([[5.0, 5.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
# What proposed node 3 is what follows node 1: siblings share the feature.
DRAFT = torch.tensor([[0.0], [1.0], [1.0], [5.0], [-5.0]])


@pytest.fixture
def head(tmp_path):
    # logits: 2 - 1 + 1 - 1.5 = 0.5, 2.8284 + 1 - 1.5 = 2.3284, 0.5 and 2 - 1 - 1 - 1.5 = -1.5
    weight, bias = torch.tensor([2.0, -1.0, 1.0]), torch.tensor([-1.5])
    Probe("semantic", "tiny", V, 2, 1, weight, bias).save(tmp_path)
    return tmp_path


def semantic(head, threshold=0.5):
    return make_rule("semantic", {"head": str(head), "threshold": threshold})


def choose(rule, tree):
    z = torch.zeros(5, V)
    z[:, 0] = 5.0
    law = replace(greedy_law(z), hidden=HIDDEN)
    sampler = Sampler(SamplingParams(seed=0), V, frozenset(), [0])
    return rule.choose(law, tree, VerifyState(torch.zeros(V, dtype=torch.bool), sampler))


def test_both_hidden_states_count(head):
    tree = replace(TREE, hidden=DRAFT)
    logits = Probe.load(head, "semantic").logit(HIDDEN, DRAFT)[1:]
    assert logits.tolist() == pytest.approx([0.5, 2.32843, 0.5, -1.5], abs=1e-4)
    assert choose(semantic(head), tree).tokens.tolist()[:3] == [2, 3, 0]
    # sigmoid(0.5) = 0.6225: node 3 is no longer accepted, node 2 is.
    assert choose(semantic(head, 0.63), tree).tokens.tolist()[:3] == [2, 0, 0]
    assert not semantic(head).lossless


def test_no_head_ships():
    rule = make_rule("semantic")
    assert (rule.trained, rule.draft_hidden, rule.signals) == (True, True, "hidden")
    with pytest.raises(ConfigError, match="no semantic head ships") as caught:
        rule.check_target("SmolLM2-135M-Instruct")
    assert caught.value.field == "rule_options.head"
    assert "train-judge --kind semantic" in str(caught.value)


def test_a_drafter_without_features(head):
    with pytest.raises(ConfigError, match="features"):
        choose(semantic(head), TREE)


def test_a_drafter_of_another_width(head):
    with pytest.raises(CheckpointError, match="draft_hidden_size 1 instead of 2"):
        choose(semantic(head), replace(TREE, hidden=DRAFT.repeat(1, 2)))


def test_a_judge_is_refused(tmp_path):
    Probe("judge", "tiny", V, 2, 0, torch.zeros(2), torch.zeros(1)).save(tmp_path)
    with pytest.raises(CheckpointError, match="is a head for 'judge'"):
        choose(semantic(tmp_path), replace(TREE, hidden=DRAFT))


def test_within_the_decode_loop(tmp_path):
    made = tiny_engine.engine()
    size = made.target.limits.hidden_size
    bias = torch.tensor([9.0])
    Probe("semantic", "tiny", 61, size, size, torch.zeros(2 * size), bias).save(tmp_path)
    result = made.generate([3, 5], rule=semantic(tmp_path), policy="static:2,2,5", max_tokens=12)
    assert result.stats.num_promoted_tokens > 0
