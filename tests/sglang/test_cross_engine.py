"""Our own engine and SGLang with the plugin agree, in float32 and greedily."""

from __future__ import annotations

import pytest

from adaptivespec.engine.engine import Engine
from harness import models
from harness.scenarios import CHAIN, TOKENS, TREE

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def answer(model_cache):
    """answer(triple, rule) -> our engine's results for the questions."""
    engine = Engine.from_pretrained(dtype="float32", cache_dir=model_cache, threads=1)

    def run(triple, rule):
        policy = "static:{},{},{}".format(*triple)
        options = {"rule": rule, "policy": policy, "temperature": 0.0, "max_tokens": TOKENS}
        return [engine.generate(prompt, trace=True, **options) for prompt in models.prompts()]

    return run


def tokens(answer):
    """Without the token that ended it, as our engine gives them."""
    return answer.tokens if answer.finish == "length" else answer.tokens[:-1]


@pytest.mark.runs("chain")
@pytest.mark.parametrize(("job", "rule"), [("questions", "strict"), ("margin", "margin:0.2")])
def test_chains_agree_token_for_token_and_round_by_round(runs, answer, job, rule):
    theirs, ours = runs["chain"][job], answer(CHAIN, rule)
    assert [result.token_ids for result in ours] == [tokens(other) for other in theirs]
    for result, other in zip(ours, theirs, strict=True):
        assert result.statistics["num_promoted_tokens"] == other.own["num_promoted_tokens"]
        assert result.lossless == other.own["lossless"]
        # But for the last round: we draft no deeper than tokens are left, SGLang cuts afterwards.
        steps = [step.num_accepted for step in result.trace]
        assert steps[:-1] == runs["chain"].accepted(other)[:-1]


@pytest.mark.runs("tree")
def test_trees_agree_on_tokens_and_nearly_on_accept_length(runs, answer):
    """SGLang's beams attend to other slots than ours where they change parent."""
    theirs, ours = runs["tree"]["questions"], answer(TREE, "strict")
    assert [result.token_ids for result in ours] == [tokens(other) for other in theirs]
    length = [
        sum(one["num_accepted_draft_tokens"] for one in side)
        / sum(one["num_spec_steps"] for one in side)
        for side in ([result.statistics for result in ours], [other.own for other in theirs])
    ]
    assert 1 + length[0] == pytest.approx(1 + length[1], rel=0.02)
