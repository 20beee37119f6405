import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_reference import FAST, path_to, random_logits, random_tree, seeds

from adaptivespec.core.law import draw, filtered, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams

V = 9


def naive_process(z, context, prompt, output_len, params, stop_ids):
    """One row of logits after bias, min_tokens and penalties; ``context`` = output + path."""
    z = [float(x) for x in z]
    for token, bias in (params.logit_bias or {}).items():
        z[token] += bias
    if output_len < params.min_tokens:
        for token in stop_ids:
            z[token] = -math.inf
    for token in range(len(z)):
        count = context.count(token)
        if count or token in prompt:
            scale = params.repetition_penalty
            z[token] = z[token] / scale if z[token] > 0 else z[token] * scale
        z[token] -= params.frequency_penalty * count
        z[token] -= params.presence_penalty * (count > 0)
    return z


params = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    presence_penalty=st.sampled_from([0.0, 0.7, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -2.0]),
    logit_bias=st.one_of(st.none(), st.dictionaries(st.integers(0, V - 1), st.floats(-9, 9))),
    min_tokens=st.integers(0, 6),
    stop_token_ids=st.sampled_from([(), (3,), (3, 5)]),
    ignore_eos=st.booleans(),
)
ids = st.lists(st.integers(0, V - 1), max_size=6)


@FAST
@given(seeds, params, ids, ids, st.sampled_from([torch.float32, torch.bfloat16]))
def test_every_node_is_processed_with_its_own_path(seed, sampling, prompt, output, dtype):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    z = random_logits(rng, tree.num_nodes, V).to(dtype)
    before = z.clone()
    sampler = Sampler(sampling, V, frozenset({1}), prompt)
    law = sampler.law(z, tree, output, 0)
    assert torch.equal(z, before)
    token = tree.token.tolist()
    for node in range(tree.num_nodes):
        drafted = [token[i] for i in path_to(tree, node)[1:]]
        want = naive_process(
            z[node],
            output + drafted,
            prompt,
            len(output) + len(drafted),
            sampling,
            sampler.stop_ids,
        )
        assert law.logits[node].tolist() == pytest.approx(want, rel=1e-5, abs=1e-5)
        assert int(law.target[node]) == int(law.logits[node].argmax())


def naive_filter(x, top_k, top_p, min_p):
    """Kept tokens: sort, take the k largest, then the shortest prefix, then the share; and ties."""
    order = sorted(range(len(x)), key=lambda i: -x[i])
    order = [i for i in order if x[i] > -math.inf]
    if top_k:
        last = x[order[min(top_k, len(order)) - 1]]
        order = [i for i in order if x[i] >= last]
    total = math.fsum(math.exp(x[i]) for i in order)
    if top_p < 1:
        mass, kept = 0.0, []
        for i in order:
            if mass >= top_p:
                break
            kept.append(i)
            mass += math.exp(x[i]) / total
        last = x[kept[-1]]
        order = [i for i in order if x[i] >= last]
    return {i for i in order if min_p == 0 or x[i] >= math.log(min_p)}


@FAST
@given(
    seeds,
    st.sampled_from([0, 1, 2, 5, 8, 100]),
    st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.01]),
    st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    st.booleans(),
)
def test_filters_keep_what_the_naive_ones_keep(seed, top_k, top_p, min_p, integers):
    rng = random.Random(seed)
    z = random_logits(rng, 4, V, integers, masked=0.2)
    x = z - z.amax(-1, keepdim=True)
    kept, weight = filtered(x, top_k, top_p, min_p)
    for row in range(4):
        want = naive_filter([float(v) for v in x[row]], top_k, top_p, min_p)
        assert set(torch.isfinite(kept[row]).nonzero().flatten().tolist()) == want
        assert (weight[row] > 0).sum() <= len(want)
        share = weight[row] / weight[row].sum()
        assert torch.allclose(share, kept[row].softmax(-1), atol=1e-6)


@FAST
@given(seeds, st.sampled_from([0.0, 1e-12, 0.25, 0.999999, 1 - 2**-53]), st.integers(1, 400))
def test_drawn_tokens_have_weight(seed, u, size):
    rng = random.Random(seed)
    weight = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    weight = weight.masked_fill(torch.rand(size) < 0.8, 0.0) * 10.0 ** rng.randrange(-30, 1)
    weight[rng.randrange(size)] = 1e-30
    assert weight[int(draw(weight, torch.tensor(u, dtype=torch.float64)))] > 0


@FAST
@given(seeds)
def test_draws_do_not_depend_on_the_tree(seed):
    """Equal rows at equal positions draw equal tokens, in one batch, alone and in a list."""
    rng = random.Random(seed)
    vocab = rng.choice([5, 130, 300])
    z = random_logits(rng, 6, vocab)
    u = torch.tensor([rng.random() for _ in range(6)], dtype=torch.float64)
    setting = {"temperature": 0.8, **rng.choice([{}, {"top_k": 4}, {"top_p": 0.7}])}
    together = sampled_law(z, u, **setting)
    order = rng.sample(range(6), 6)
    assert torch.equal(sampled_law(z[order], u[order], **setting).target, together.target[order])
    folded = sampled_law(z.view(2, 3, vocab), u.view(2, 3), **setting)
    assert torch.equal(folded.target.flatten(), together.target)


@FAST
@given(seeds, st.integers(0, 600), st.integers(0, 2**64))
def test_a_position_has_one_number_whatever_was_drawn_before(seed, position, request_seed):
    rng = random.Random(seed)
    tree = random_tree(rng, V)

    def fresh():
        return Sampler(SamplingParams(temperature=1.0, seed=request_seed), V, frozenset(), [0])

    direct, walked = fresh(), fresh()
    for start in sorted(rng.randrange(position + 1) for _ in range(3)):
        walked._uniforms(tree, start)
        walked.promotion_noise(rng.randrange(5))
    assert torch.equal(direct._uniforms(tree, position), walked._uniforms(tree, position))
