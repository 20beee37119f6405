"""Sampling through model.generate of transformers: seeds repeat, the law is transformers' own."""

from __future__ import annotations

import pytest
import torch

from fakes import tiny
from fakes.scripted import ScriptedDrafter

transformers = pytest.importorskip("transformers", reason="needs transformers")

from adaptivespec.core.errors import NumericalError  # noqa: E402
from adaptivespec.core.sampling import SamplingParams  # noqa: E402
from adaptivespec.core.tree import DraftTree  # noqa: E402
from adaptivespec.integrations.transformers.sampler import HostSampler  # noqa: E402
from fakes.host_model import TREE, ids_of, knows, model_of, ours, plain  # noqa: E402

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 12, "top_p": 0.95, "min_p": 0.01}


def test_a_seed_repeats_and_drafts_do_not_change_what_it_draws():
    runs = []
    text = plain(model_of(), ids_of())[0].tolist()
    for draft in (None, knows(text), knows(text), tiny.head()):
        torch.manual_seed(3)
        policy = "none" if draft is None else TREE
        runs.append(ours(model_of(), ids_of(), draft_model=draft, policy=policy, **SAMPLING))
    first, *others = [run.sequences.tolist() for run in runs]
    assert all(other == first for other in others)
    torch.manual_seed(4)
    assert ours(model_of(), ids_of(), **SAMPLING).sequences.tolist() != first


def test_greedy_decoding_draws_no_random_number():
    before = torch.get_rng_state()
    ours(model_of(), ids_of())
    assert torch.equal(torch.get_rng_state(), before)


def test_returned_sequences_differ():
    out = ours(model_of(), ids_of(), 8, num_return_sequences=3, **SAMPLING)
    assert len({tuple(row) for row in out.sequences.tolist()}) == 3


def test_sampled_pairs_have_the_law_of_transformers_processors():
    """Chi-square over pairs of tokens, at temperature, top-k and a repetition penalty."""
    model, draws, vocab = model_of(vocab=8, layers=1), 600, 8
    options = {"do_sample": True, "temperature": 4.0, "top_k": 3, "repetition_penalty": 1.3}
    ids = ids_of([5, 2, 3])
    drafter = ScriptedDrafter(lambda prefix: [(t, -1) for t in range(vocab)])
    torch.manual_seed(0)
    counts = torch.zeros(vocab, vocab)
    for _ in range(3):
        out = ours(
            model,
            ids,
            2,
            draft_model=drafter,
            policy="static:1,8,9",
            num_return_sequences=draws // 3,
            **options,
        )
        for _, _, _, first, second in out.sequences.tolist():
            counts[first, second] += 1
    law = pair_law(model, ids, options)
    assert counts[law == 0].sum() == 0
    expected = law[law > 0] * draws
    statistic = float(((counts[law > 0] - expected) ** 2 / expected).sum())
    assert (len(expected), expected.min() > 5) == (9, True)
    assert statistic < 31.8  # upper 1e-4 point of chi-square at 8 degrees of freedom


def pair_law(model, ids, options):
    """f32[V, V]: the probability of each pair of next tokens, by transformers alone."""

    def next_law(prefix):
        out = model.generate(
            prefix,
            attention_mask=torch.ones_like(prefix),
            max_new_tokens=1,
            output_scores=True,
            return_dict_in_generate=True,
            **options,
        )
        return out.scores[0][0].softmax(-1)

    first = next_law(ids)
    rows = [next_law(torch.cat([ids, torch.tensor([[t]])], -1)) for t in range(len(first))]
    return first[:, None] * torch.stack(rows)


def test_margins_are_those_before_the_warpers_and_the_targets_logits_stay_as_they_are():
    warpers = [transformers.TemperatureLogitsWarper(0.5), transformers.TopKLogitsWarper(2)]
    penalty = transformers.RepetitionPenaltyLogitsProcessor(2.0)
    processors = transformers.LogitsProcessorList([penalty, *warpers])
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    before = logits.clone()
    sampler = HostSampler(processors, torch.tensor([[0]]), 0, SamplingParams(temperature=1.0), 4)
    law = sampler.law(logits, DraftTree.from_parents([0, 3], [-1, 0]), [], 0)
    assert torch.equal(logits, before)
    assert law.logits.tolist() == [[2.0, 3.0, 2.0, 1.0], [0.5, 2.0, 3.0, 2.0]]
    assert law.peak.tolist() == [3.0, 3.0]
    inf = float("inf")
    assert law.scaled.tolist() == [[-2.0, 0.0, -2.0, -inf], [-inf, -2.0, 0.0, -2.0]]


def test_logits_that_are_no_numbers_are_refused_with_step_and_node():
    processors = transformers.LogitsProcessorList()
    sampler = HostSampler(processors, torch.tensor([[0]]), 0, SamplingParams(), 4)
    tree = DraftTree.from_parents([0, 3], [-1, 0])
    with pytest.raises(NumericalError) as caught:
        sampler.law(torch.tensor([[0.0] * 4, [float("nan")] * 4]), tree, [], 5)
    assert (caught.value.step, caught.value.node) == (5, 1)
