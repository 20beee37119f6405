import math

import pytest
import torch

from adaptivespec.core.errors import ConfigError, NumericalError
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree

NAN, INF = math.nan, math.inf
V = 8


def sampler(prompt=(0, 1), eos=frozenset({7}), vocab=V, **params):
    return Sampler(SamplingParams(**params), vocab, eos, prompt)


def logits(rows, vocab=V, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize(
    ("field", "legal", "illegal"),
    [
        ("temperature", [0, 0.0, 1e-9, 1, 50.0], [-0.1, NAN, INF, "1", None, True]),
        ("top_p", [1e-6, 0.5, 1.0, 1], [0, 0.0, -1, 1.01, NAN, INF]),
        ("top_k", [0, 1, 10**6], [-1, 1.5, True, "3"]),
        ("min_p", [0.0, 0.5, 1], [-0.01, 1.01, NAN]),
        ("repetition_penalty", [0.1, 1.0, 2], [0, -1.0, NAN, INF]),
        ("presence_penalty", [-2, 0.0, 2.0], [-2.1, 2.1, NAN]),
        ("frequency_penalty", [-2, 0.0, 2.0], [-2.1, 2.1, INF]),
        ("seed", [None, 0, -5, 2**70], [1.0, "1", True]),
        ("max_tokens", [1, 10**9], [0, -1, 1.0]),
        ("min_tokens", [0, 3, 256], [-1, 257, 0.5]),
        ("stop", [(), ("a",), ["a", "b"], "a"], [("",), ("a", 3)]),
        ("stop_token_ids", [(), (0, 5), [1]], [(-1,), (1.0,), (True,)]),
        (
            "logit_bias",
            [None, {}, {0: -100, 5: 100.0}],
            [{-1: 0.0}, {"1": 0.0}, {0: 101}, {0: NAN}],
        ),
    ],
)
def test_bounds(field, legal, illegal):
    for value in legal:
        SamplingParams(**{field: value})
    for value in illegal:
        with pytest.raises(ConfigError) as caught:
            SamplingParams(**{field: value})
        assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"temperature": -1}, "temperature: must be a number in [0, inf), got -1"),
        ({"top_p": 0}, "top_p: must be a number in (0, 1], got 0"),
        ({"presence_penalty": 3}, "presence_penalty: must be a number in [-2, 2], got 3"),
        ({"max_tokens": 0}, "max_tokens: must be an integer in [1, inf), got 0"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens: must be an integer in [0, 5], got 6"),
        ({"logit_bias": {3: 200}}, "logit_bias[3]: must be a number in [-100, 100], got 200"),
        ({"stop": ("",)}, "stop: must hold non-empty strings, got ''"),
    ],
)
def test_messages_say_the_interval_and_the_value(params, text):
    with pytest.raises(ConfigError) as caught:
        SamplingParams(**params)
    assert str(caught.value) == text


def test_values_are_normalised():
    params = SamplingParams(stop="end", stop_token_ids=[3])
    assert (params.stop, params.stop_token_ids) == (("end",), (3,))


@pytest.mark.parametrize(
    ("params", "greedy"),
    [({}, True), ({"temperature": 1.0}, False), ({"temperature": 1.0, "top_k": 1}, True)],
)
def test_greedy(params, greedy):
    assert SamplingParams(**params).greedy is greedy


def test_stop_ids():
    eos = frozenset({7})
    assert SamplingParams(stop_token_ids=(3,)).stop_ids(eos) == {3, 7}
    assert SamplingParams(stop_token_ids=(3,), ignore_eos=True).stop_ids(eos) == {3}


@pytest.mark.parametrize("field", ["stop_token_ids", "logit_bias"])
def test_ids_outside_the_vocabulary_are_refused(field):
    value = (V,) if field == "stop_token_ids" else {V: 1.0}
    with pytest.raises(ConfigError, match=rf"\[0, {V - 1}\]"):
        sampler(**{field: value})


def test_logits_of_another_shape_are_refused():
    tree = DraftTree.chain([1, 2])
    for bad in (logits(1), logits(2, V + 1)):
        with pytest.raises(ValueError, match="shape"):
            sampler().law(bad, tree, [], 0)


def test_greedy_draws_no_random_number_and_returns_the_logits_as_given():
    state = torch.get_rng_state()
    for params in ({}, {"temperature": 1.0, "top_k": 1}):
        one = sampler(**params)
        z = logits(3)
        law = one.law(z, DraftTree.chain([1, 2, 3]), [], 0)
        assert law.logits is z
        assert one._generator is None
        assert one._promotions is None
    assert torch.equal(torch.get_rng_state(), state)


def test_sampling_leaves_the_global_stream_alone():
    state = torch.get_rng_state()
    one = sampler(temperature=1.0)
    one.law(logits(1), DraftTree.root_only(1), [], 0)
    one.promotion_noise(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_fixes_the_tokens_and_seeds_differ():
    def tokens(seed):
        one = sampler(temperature=1.5, seed=seed)
        return [
            int(one.law(logits(1, seed=i), DraftTree.root_only(1), [0] * i, i).target)
            for i in range(40)
        ]

    assert tokens(3) == tokens(3)
    assert tokens(-1) == tokens(2**64 - 1)  # reduced modulo 2^64
    runs = {tuple(tokens(seed)) for seed in (0, 1, 2, -2, 2**70, None, None)}
    assert len(runs) >= 6  # 2^70 and 0 are the same modulo 2^64


def test_two_requests_do_not_disturb_each_other():
    def step(one, i):
        return int(one.law(logits(1, seed=i), DraftTree.root_only(1), [0] * i, i).target)

    solo = [step(one, i) for one in [sampler(temperature=1.0, seed=5)] for i in range(20)]
    first, second = sampler(temperature=1.0, seed=5), sampler(temperature=1.0, seed=6)
    mixed = []
    for i in range(20):
        mixed.append(step(first, i))
        step(second, i)
        first.promotion_noise(i)
    assert mixed == solo


def test_one_number_for_each_position_whatever_the_tree():
    z = logits(1).expand(6, V)
    tree = DraftTree.from_parents([1, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 2, 4])
    one = sampler(temperature=1.3, seed=9)
    target = one.law(z, tree, [0, 0], 0).target.tolist()
    plain = sampler(temperature=1.3, seed=9)
    want = [
        int(plain.law(z[:1], DraftTree.root_only(1), [0] * (2 + d), 0).target) for d in range(4)
    ]
    assert target == [want[d] for d in tree.depth.tolist()]


def test_positions_far_apart_extend_the_stream_consistently():
    far, near = sampler(temperature=1.0, seed=1), sampler(temperature=1.0, seed=1)
    root = DraftTree.root_only(1)
    late = far.law(logits(1), root, [0] * 1000, 0).target
    for i in range(0, 1001, 100):
        token = near.law(logits(1), root, [0] * i, 0).target
    assert token == late


def test_promotion_noise_is_a_stream_of_its_own():
    one, two = sampler(temperature=1.0, seed=4), sampler(temperature=1.0, seed=4)
    two.law(logits(1), DraftTree.root_only(1), [], 0)
    first = one.promotion_noise(100)
    assert torch.equal(first, two.promotion_noise(100))
    assert not torch.equal(first, one.promotion_noise(100))
    assert first.dtype == torch.float32
    assert 0 <= first.min() <= first.max() < 1
    two.law(logits(1), DraftTree.root_only(1), [], 0)
    assert two._generator.initial_seed() != two._promotions.initial_seed()


def test_flat_logits_give_more_than_one_token():
    root = DraftTree.root_only(1)
    drawn = {
        int(sampler(temperature=1.0).law(torch.zeros(1, V), root, [], 0).target) for _ in range(200)
    }
    assert len(drawn) > 1


def test_logit_bias():
    z = torch.zeros(2, V)
    law = sampler(logit_bias={3: 5.0, 0: -100}).law(z, DraftTree.chain([1, 2]), [], 0)
    assert law.target.tolist() == [3, 3]
    assert law.logits[0].tolist() == [-100.0, 0, 0, 5.0, 0, 0, 0, 0]
    assert z.eq(0).all()  # the model's logits stay as they were


@pytest.mark.parametrize("produced", [0, 1, 2, 3, 4])
def test_min_tokens_masks_stop_ids_on_early_positions_only(produced):
    z = torch.zeros(4, V)
    z[:, 7] = 9.0
    z[:, 5] = 8.0
    one = sampler(min_tokens=3, stop_token_ids=(5,))
    tree = DraftTree.chain([1, 1, 1, 1])
    law = one.law(z, tree, [1] * produced, 0)
    early = [produced + depth < 3 for depth in range(4)]
    assert law.target.tolist() == [0 if e else 7 for e in early]
    assert (law.logits[:, 5] == -INF).tolist() == early


def test_min_tokens_leaves_an_ignored_eos_alone():
    z = torch.zeros(1, V)
    z[:, 7] = 9.0
    law = sampler(min_tokens=3, ignore_eos=True).law(z, DraftTree.root_only(1), [], 0)
    assert law.target.tolist() == [7]


def test_penalties_by_hand():
    # prompt 0 1, output 2 2 3; the root is 3, its child 2: counts at the child 2:3, 3:1
    z = torch.tensor([[1.0, -1.0, 4.0, 4.0, 4.0, 0, 0, 0]] * 2)
    one = sampler(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=1.0)
    law = one.law(z, DraftTree.chain([3, 2]), [2, 2, 3], 0)
    assert law.logits[0].tolist() == [0.5, -2.0, 0.0, 0.5, 4.0, 0, 0, 0]
    assert law.logits[1].tolist() == [0.5, -2.0, -0.5, 0.5, 4.0, 0, 0, 0]


def test_frequency_penalty_counts_the_own_path_only():
    # the target loves token 3; siblings 3 and 4 at depth 1
    z = torch.tensor([[0, 0, 0, 3.0, 2.0, 0, 0, 0]] * 3)
    tree = DraftTree.from_parents([0, 3, 4], [-1, 0, 0])
    law = sampler(frequency_penalty=2.0).law(z, tree, [], 0)
    assert law.target.tolist() == [3, 4, 3]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"frequency_penalty": 1.0}])
@pytest.mark.parametrize(
    ("value", "words"), [(NAN, "are NaN"), (INF, "hold"), (-INF, "are all -inf")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bad_logits_raise_with_step_and_node(params, value, words, dtype):
    z = logits(3).to(dtype)
    if value == -INF:
        z[1] = value
    else:
        z[1, 4] = value
    with pytest.raises(NumericalError, match=words) as caught:
        sampler(**params).law(z, DraftTree.chain([1, 2, 3]), [], 12)
    assert (caught.value.step, caught.value.node) == (12, 1)


def test_single_masked_tokens_are_no_error():
    z = logits(2)
    z[:, :6] = -INF
    law = sampler(temperature=1.0, seed=0).law(z, DraftTree.chain([1, 2]), [], 0)
    assert all(token >= 6 for token in law.target.tolist())


def test_huge_finite_logits_are_no_error():
    z = torch.full((4, V), 3e38)
    assert sampler().law(z, DraftTree.chain([1] * 4), [], 0).target.tolist() == [0, 0, 0, 0]
