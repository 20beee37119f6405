"""The judge's decisions by hand, and what is refused of its checkpoint."""

import json
import math

import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.core.law import greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.judge import JudgeOptions
from adaptivespec.verify.probe import CONFIG_FILE, WEIGHTS_FILE, Probe
from fakes import scripted, tiny_engine

V, H = 8, 2

# Root, two children of the root, two children of node 1.
TREE = DraftTree.from_parents([7, 1, 2, 3, 4], [-1, 0, 0, 1, 1])
# rms of (1, 1) is 1, of (2, 0) and (0, 3) it is 2 and 3 over sqrt 2: the rows become (1, 1),
# (1.4142, 0) and (0, 1.4142). With w = (2, -1), b = -0.5 the logits of nodes 1 to 4 are
# 2 - 1 - 0.5 = 0.5, 2.8284 - 0.5 = 2.3284, -1.4142 - 0.5 = -1.9142 and 2.3284.
HIDDEN = torch.tensor([[5.0, 5.0], [1.0, 1.0], [2.0, 0.0], [0.0, 3.0], [4.0, 0.0]])
LOGITS = [0.5, 2.32843, -1.91421, 2.32843]


def probe(**changes):
    values = {
        "kind": "judge",
        "target": "SmolLM2-135M-Instruct",
        "vocab_size": V,
        "hidden_size": H,
        "draft_hidden_size": 0,
        "weight": torch.tensor([2.0, -1.0]),
        "bias": torch.tensor([-0.5]),
    }
    return Probe(**{**values, **changes})


@pytest.fixture
def head(tmp_path):
    probe().save(tmp_path / "head")
    return tmp_path / "head"


def judge(head, threshold=0.5):
    return make_rule("judge", {"head": str(head), "threshold": threshold})


def state(protected=()):
    mask = torch.zeros(V, dtype=torch.bool)
    mask[list(protected)] = True
    return VerifyState(mask, Sampler(SamplingParams(seed=0), V, frozenset(), [0]))


def rows(*peaks, nodes=5):
    """Logits 0 but for a 5 at each node's own token; node 0's comes first."""
    z = torch.zeros(nodes, V)
    for node, token in enumerate(peaks):
        z[node, token] = 5.0
    return z


def law_of(z, hidden=HIDDEN, make=greedy_law, **options):
    law = make(z, **options)
    return type(law)(law.logits, law.peak, law.target, law.scaled, hidden)


def choose(rule, law, tree=TREE, protected=()):
    return rule.choose(law, tree, state(protected))


def test_the_logits_by_hand():
    assert probe().logit(HIDDEN)[1:].tolist() == pytest.approx(LOGITS, abs=1e-4)
    assert probe().logit(torch.zeros(1, H)).item() == pytest.approx(-0.5)


def test_a_rejection_is_overridden_by_the_child_of_largest_score(head):
    # The root wants 0, node 1 wants 3, node 2 wants 6.
    chosen = choose(judge(head), law_of(rows(0, 3, 6)))
    assert chosen.tokens[:3].tolist() == [2, 3, 6]
    done = verdict(TREE, chosen)
    assert (done.path, done.tokens) == ([0, 2], [2, 6])
    assert done.kinds == [Kind.PROMOTED, Kind.BONUS]
    assert done.drops[0] == pytest.approx(5.0)
    assert not judge(head).lossless


def test_the_targets_own_token_comes_first(head):
    # Node 3 holds the token that node 1 wants; its sibling 4 has the larger score.
    chosen = choose(judge(head), law_of(rows(1, 3)))
    assert chosen.tokens[:2].tolist() == [1, 3]
    assert choose(judge(head), law_of(rows(1, 6))).tokens[1] == 4


@pytest.mark.parametrize(
    ("threshold", "root"),
    # sigmoid(0.5) = 0.62246 and sigmoid(2.32843) = 0.91122; nodes 1 and 2 hold tokens 1 and 2.
    [(0.01, 2), (0.62, 2), (0.9112, 2), (0.9113, 0), (0.99, 0)],
)
def test_the_threshold(head, threshold, root):
    assert choose(judge(head, threshold), law_of(rows(0))).tokens[0] == root


def test_the_scale_of_the_hidden_states_does_not_matter(head):
    one = choose(judge(head, 0.7), law_of(rows(0, 6)))
    for factor in (1e-3, 1e4):
        other = choose(judge(head, 0.7), law_of(rows(0, 6), HIDDEN * factor))
        assert torch.equal(one.tokens, other.tokens)


def test_ties_go_to_the_lowest_index(head):
    hidden = HIDDEN.clone()
    hidden[1] = hidden[2]
    assert choose(judge(head), law_of(rows(0), hidden)).tokens[0] == 1


@pytest.mark.parametrize(("protected", "root"), [((2,), 1), ((1, 2), 0), ((0,), 0), ((5,), 2)])
def test_protected_tokens_are_neither_promoted_nor_overridden(head, protected, root):
    assert choose(judge(head), law_of(rows(0)), protected=protected).tokens[0] == root


def test_a_masked_child_is_not_accepted(head):
    z = rows(0)
    z[0, 2] = -math.inf
    assert choose(judge(head), law_of(z)).tokens[0] == 1


def test_sampling_accepts_by_score_what_the_filters_leave(head):
    def sampled(z, **options):
        return law_of(z, make=sampled_law, uniform=torch.zeros(5).double(), **options)

    z = rows(0)
    z[0, 1] = 1.0
    rule = judge(head)
    assert choose(rule, sampled(z, temperature=1.0)).tokens[0] == 2
    assert choose(rule, sampled(z, temperature=1.0, top_k=2)).tokens[0] == 1
    assert choose(rule, sampled(z, temperature=1.0, top_k=1)).tokens[0] == 0


def test_a_batch_equals_its_trees(head):
    small = DraftTree.from_parents([7, 1, 2], [-1, 0, 0])
    batch = DraftTree.pad_stack([TREE, small])
    z = torch.stack([rows(0, 6), rows(0, 3)])
    hidden = torch.stack([HIDDEN, HIDDEN.flip(0)])
    rule = judge(head)
    both = choose(rule, law_of(z, hidden), batch)
    for i, tree in enumerate((TREE, small)):
        n = tree.num_nodes
        one = choose(rule, law_of(z[i, :n], hidden[i, :n]), tree)
        assert torch.equal(both.tokens[i, :n], one.tokens)


def test_half_precision_rows(head):
    law = law_of(rows(0).bfloat16(), HIDDEN.bfloat16())
    assert choose(judge(head), law).tokens[0] == 2


def test_the_state_is_not_changed(head):
    one = state()
    judge(head).choose(law_of(rows(0)), TREE, one)
    assert one.sampler._promotions is None
    assert one.memory == {}


def test_making_the_rule_reads_nothing(tmp_path):
    rule = judge(tmp_path / "nowhere")
    assert (rule.trained, rule.signals, rule.draft_hidden) == (True, "hidden", False)
    root = DraftTree.root_only(1)
    with pytest.raises(ConfigError, match="train-judge") as caught:
        choose(rule, law_of(rows(0, nodes=1), HIDDEN[:1]), root)
    assert caught.value.field == "rule_options.head"


@pytest.mark.parametrize("threshold", [0, 1, -0.5, math.nan])
def test_the_threshold_has_bounds(threshold):
    with pytest.raises(ConfigError, match="threshold"):
        make_rule("judge", {"threshold": threshold})


def test_spelling():
    assert make_rule("judge:0.7").options == JudgeOptions(threshold=0.7)
    assert make_rule("judge:threshold=0.7,head=my-judge").options.head == "my-judge"
    assert make_rule("judge:0.7").label == "judge:threshold=0.7"


def test_a_head_comes_back_as_it_was_saved(tmp_path):
    made = probe(provenance={"date": "2026-01-01"})
    made.save(tmp_path)
    loaded = Probe.load(tmp_path, "judge")
    assert torch.equal(loaded.weight, made.weight)
    assert torch.equal(loaded.bias, made.bias)
    assert (loaded.target, loaded.provenance) == (made.target, made.provenance)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 3, "weight": torch.zeros(3)}, "hidden_size 3 instead of 2"),
        ({"vocab_size": 9}, "vocab_size 9 instead of 8"),
    ],
)
def test_a_head_for_other_sizes_is_refused(tmp_path, change, words):
    probe(**change).save(tmp_path)
    with pytest.raises(CheckpointError, match=words) as caught:
        choose(judge(tmp_path), law_of(rows(0)))
    assert caught.value.field == "rule_options.head"
    assert "train-judge" in str(caught.value)


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"])
def test_the_name_of_the_target(head, name):
    judge(head).check_target(name)


def test_a_head_for_another_target_is_refused(head):
    made = tiny_engine.engine()
    with pytest.raises(ConfigError, match="the target is tiny") as caught:
        made.stream([1], rule=judge(head))
    assert caught.value.field == "rule_options.head"
    with pytest.raises(ConfigError, match="trained for SmolLM2-135M-Instruct, the target is other"):
        judge(head).check_target("other")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "semantic"}, "is a head for 'semantic'"),
        ({"hidden_size": "many"}, "bad one"),
        ({"hidden_size": 5}, "weight and bias"),
        ({"draft_hidden_size": 1}, "draft_hidden_size 1"),
        ({"target": None, "vocab_size": None}, "bad one"),
    ],
)
def test_a_configuration_that_does_not_fit(head, change, words):
    path = head / CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=words):
        Probe.load(head, "judge")


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("content", [None, b"", b"[1]"])
def test_damaged_files(head, name, content):
    if content is None:
        (head / name).unlink()
    else:
        (head / name).write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        Probe.load(head, "judge")
    assert name in str(caught.value)
    assert "train-judge" in str(caught.value)


def test_numbers_that_are_not_finite(tmp_path):
    probe(bias=torch.tensor([math.nan])).save(tmp_path)
    with pytest.raises(CheckpointError, match="not finite"):
        Probe.load(tmp_path, "judge")


def test_a_target_without_hidden_states(head):
    probe(target="scripted").save(head)
    made = scripted.engine(lambda p: scripted.prefer(3), lambda p: scripted.chain(4))
    with pytest.raises(ConfigError, match="hidden states"):
        made.generate([1], rule=judge(head), policy="chain:1", max_tokens=4)


def test_the_shipped_head():
    shipped = Probe.load("", "judge")
    shipped.check_target("SmolLM2-135M-Instruct")
    shipped.check_sizes(hidden=576, vocab=49152)
    held_out = shipped.provenance["report"]["held_out"]
    assert held_out["flips"] >= 50
    assert {"auc", "margin_auc", "interval_95", "base_rate"} <= set(held_out)


def test_within_the_decode_loop(tmp_path):
    """A head that takes everything promotes every first draft that strict rejects."""
    made = tiny_engine.engine()
    size = made.target.limits.hidden_size
    values = {"target": "tiny", "vocab_size": 61, "hidden_size": size, "weight": torch.zeros(size)}
    probe(**values, bias=torch.tensor([9.0])).save(tmp_path / "all")
    probe(**values, bias=torch.tensor([-9.0])).save(tmp_path / "none")
    options = {"policy": "static:2,2,5", "max_tokens": 12}
    strict = made.generate([3, 5], **options)
    none = made.generate([3, 5], rule=judge(tmp_path / "none"), **options)
    every = made.generate([3, 5], rule=judge(tmp_path / "all"), **options)
    assert none.token_ids == strict.token_ids
    assert not none.lossless
    assert every.stats.num_promoted_tokens > 0
