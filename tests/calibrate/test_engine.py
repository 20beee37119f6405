"""An engine and a certificate: its rule decodes where it holds, strict where it does not."""

from __future__ import annotations

import warnings

import pytest

from adaptivespec.calibrate.rule_config import rule_from
from adaptivespec.core.errors import FallbackWarning
from adaptivespec.engine.identity import head_of, identity_of, in_force, model_of
from fakes import tiny_engine
from fakes.certificates import certificate


@pytest.fixture(scope="module")
def engine():
    return tiny_engine.endless()


def answer(engine, ruling):
    return engine.generate(
        list(range(1, 9)), rule=ruling.rule, policy=ruling.policy or "auto", max_tokens=40
    )


def made(engine, **changes):
    fields = {"model": model_of(engine), "head": head_of(engine), "policy": "static"}
    return certificate((0, 0), (0.5, 0.0), **{**fields, **changes})


def test_identity(engine):
    assert identity_of(engine) == {
        "model": {"name": "tiny", "digest": None},
        "head": {"name": "unnamed", "digest": None},
        "backend": "torch",
        "precision": "float32",
    }
    assert in_force(engine, ("static", {"topk": 2})).policy == "static:topk=2"
    assert in_force(engine).policy is None


def test_where_it_holds_its_rule_decodes(engine):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        result = answer(engine, rule_from(made(engine), in_force(engine)))
    assert (result.rule, result.policy, result.lossless) == ("margin:kappa=0.0", "static", False)
    assert result.stats.num_promoted_tokens > 0


def test_where_it_does_not_the_answer_is_that_of_strict(engine):
    strict = engine.generate(list(range(1, 9)), policy="static", max_tokens=40)
    with pytest.warns(FallbackWarning, match="policy is static:topk=2"):
        ruling = rule_from(made(engine), in_force(engine, ("static", {"topk": 2})))
    result = answer(engine, ruling)
    assert result.lossless
    assert result.token_ids == strict.token_ids
    assert result.stats.num_promoted_tokens == 0
