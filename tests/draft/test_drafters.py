"""Every drafter with every policy and every rule: no drafter changes what a lossless rule says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.choice import DrafterChoice, is_language_model, make_drafter
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter
from adaptivespec.engine.batch import Batch
from adaptivespec.engine.engine import Engine
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.verify import RULES, make_rule
from fakes import drafters, tiny
from fakes.random_head import with_head

#: Those that run a model of their own take seconds.
NAMES = tuple(
    pytest.param(name, marks=[] if name in ("ngram", "graft") else pytest.mark.slow)
    for name in drafters.MAKE
)
PROMPT = [5, 9, 11, 2, 40, 5, 9, 11, 2, 40, 7, 5, 9]
SAMPLED = {"temperature": 0.9, "seed": 3, "top_p": 0.95}
DRAFTING = [name for name in POLICIES.names() if name != "none"]


@pytest.fixture(scope="module")
def engines() -> dict[str, Engine]:
    return {name: drafters.engine(name) for name in drafters.MAKE}


@pytest.fixture(scope="module")
def plain() -> dict[bool, list[int]]:
    engine = drafters.engine("ngram")
    options: dict[str, Any] = {"policy": "none", "max_tokens": 14, "ignore_eos": True}
    return {
        False: engine.generate(PROMPT, **options).token_ids,
        True: engine.generate(PROMPT, **options, **SAMPLED).token_ids,
    }


@pytest.mark.parametrize("policy", DRAFTING)
@pytest.mark.parametrize("name", NAMES)
def test_strict_is_plain(
    engines: dict[str, Engine], plain: dict[bool, list[int]], name: str, policy: str
) -> None:
    for sampled in (False, True):
        options: dict[str, Any] = SAMPLED if sampled else {}
        result = engines[name].generate(
            PROMPT, policy=policy, max_tokens=14, ignore_eos=True, **options
        )
        assert result.token_ids == plain[sampled]
        assert result.statistics["num_spec_steps"] > 0


@pytest.mark.parametrize("rule_name", RULES.names())
@pytest.mark.parametrize("name", NAMES)
def test_every_rule(
    engines: dict[str, Engine], plain: dict[bool, list[int]], rule_name: str, name: str
) -> None:
    rule = with_head(make_rule(rule_name), drafters.VOCAB, tiny.CONFIG.hidden_size)
    asked: dict[str, Any] = {"rule": rule, "max_tokens": 8, "ignore_eos": True}
    if rule.draft_hidden and name == "ngram":
        with pytest.raises(ConfigError, match="gives no features"):
            engines[name].generate(PROMPT, policy="chain:3", **asked)
        return
    greedy = engines[name].generate(PROMPT, policy="medusa" if rule.tree else "chain:3", **asked)
    assert len(greedy.token_ids) == 8
    if rule.lossless:
        assert greedy.token_ids == plain[False][:8]
    if rule.sampling:
        drawn = [engines[name].generate(PROMPT, policy="chain:3", **asked, **SAMPLED) for _ in "ab"]
        assert drawn[0].token_ids == drawn[1].token_ids
        assert len(drawn[0].token_ids) == 8


requests = st.lists(
    st.tuples(
        st.sampled_from(
            [[3], PROMPT, [7] * 20, [*range(1, 40)], [*range(1, 40), 3, 4], [*PROMPT, 4, 5, 9]]
        ),
        st.sampled_from(
            [
                {"policy": "chain:4"},
                {"policy": "dcs", "rule": "margin:0.3"},
                {"policy": "eagle2:4,2,7", "temperature": 1.0, "seed": 5},
                {"policy": "chain:3", "rule": "rejection", "temperature": 1.0, "seed": 8},
                {"policy": "none"},
            ]
        ),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", NAMES)
@given(asked=requests)
@settings(max_examples=2)
def test_company_and_used_sessions_change_nothing(
    engines: dict[str, Engine], name: str, asked: Any
) -> None:
    engine = engines[name]
    alone = [engine.generate(prompt, max_tokens=14, **options) for prompt, options in asked]
    session = engine.session()
    one = [
        engine.generate(prompt, max_tokens=14, session=session, **options)
        for prompt, options in asked
    ]
    batch = Batch(engine.target)
    jobs = [engine.job(prompt, max_tokens=14, **options) for prompt, options in asked]
    for job in jobs:
        batch.add(job, engine.session())
    while batch.members:
        for member, chunk in batch.step():
            assert chunk is not None, member.error
    want = [result.token_ids for result in alone]
    assert [result.token_ids for result in one] == want
    assert [job.result.token_ids for job in jobs] == want


@pytest.mark.parametrize("policy", ["chain:3", "dcs", "priced"])
def test_a_small_model_changes_nothing(
    engines: dict[str, Engine], plain: dict[bool, list[int]], policy: str
) -> None:
    for name in ("twin", "stranger"):
        result = engines[name].generate(PROMPT, policy=policy, max_tokens=14, ignore_eos=True)
        assert result.token_ids == plain[False]


def test_ngrams_speed_up_a_text_that_repeats_itself(engines: dict[str, Engine]) -> None:
    engine = engines["ngram"]
    options: dict[str, Any] = {"max_tokens": 60, "logit_bias": {5: 100.0}}
    result = engine.generate(PROMPT, policy="chain:5", **options)
    assert result.token_ids == [5] * 60
    assert result.statistics["num_spec_steps"] < 20


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, DrafterChoice()),
        ("ngram", DrafterChoice(None, True, True)),
        ("+ngram", DrafterChoice(None, True)),
        ("some/head+ngram", DrafterChoice("some/head", True)),
        ("some/head", DrafterChoice("some/head")),
        ("some/ngram", DrafterChoice("some/ngram")),
    ],
)
def test_spellings(text: str | None, want: DrafterChoice) -> None:
    assert DrafterChoice.parse(text) == want


@pytest.mark.parametrize("text", ["ngram+ngram", "+ngram+ngram", "a+ngram+ngram"])
def test_ngrams_are_not_grafted_onto_ngrams(text: str) -> None:
    with pytest.raises(ConfigError, match=r"draft_model.*ngram"):
        DrafterChoice.parse(text)


def test_a_path_that_exists_is_that_path(tmp_path: Any) -> None:
    for name in ("ngram", "head+ngram"):
        (tmp_path / name).mkdir()
        for given_as in (tmp_path / name, str(tmp_path / name)):
            assert DrafterChoice.parse(given_as) == DrafterChoice(given_as)


def test_the_parts_are_put_together() -> None:
    head: Any = tiny.drafter(tiny.target())
    vocab = drafters.VOCAB
    assert make_drafter(DrafterChoice(), None, vocab) is None
    assert make_drafter(DrafterChoice(), head, vocab) is head
    assert isinstance(make_drafter(DrafterChoice.parse("ngram"), head, vocab), NgramDrafter)
    assert isinstance(make_drafter(DrafterChoice.parse("+ngram"), None, vocab), NgramDrafter)
    both = make_drafter(DrafterChoice.parse("+ngram"), head, vocab)
    assert isinstance(both, GraftDrafter)
    assert both.main is head
    assert both.tap_layers == head.tap_layers


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}, True),
        ({"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 24}, True),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, False),
        (
            {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "draft_vocab_size": 9},
            False,
        ),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, False),
        ({"speculators_model_type": "eagle3", "num_hidden_layers": 32}, False),
        ({}, False),
    ],
)
def test_models_and_heads_are_told_apart(config: dict[str, Any], want: bool) -> None:
    assert is_language_model(config) is want


def test_every_policy_is_tried() -> None:
    assert [name for name in POLICIES.names() if make_policy(name).needs_draft] == DRAFTING
