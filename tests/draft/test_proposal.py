"""Proposals of speculators configs in terms of the margin rule, and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.proposal import Proposal, margin_of, proposal_of, read_proposal
from adaptivespec.policy import make_policy
from adaptivespec.verify import make_rule
from fakes import head_dialects


@pytest.mark.parametrize(
    ("rank", "tolerance", "kappa"),
    [(1, 0.0, 1.0), (1, 3.0, 1.0), (5, 0.0, 1.0), (5, math.log(5), 0.2), (2, 5.0, math.exp(-5))],
)
def test_the_tolerance_is_the_margin_in_log_space(
    rank: int, tolerance: float, kappa: float
) -> None:
    mapping = margin_of(Proposal(4, rank, tolerance))
    assert mapping.kappa == pytest.approx(kappa)
    assert mapping.policy == "chain:4"
    assert bool(mapping.lost) == (kappa < 1)
    rule = make_rule(mapping.rule)
    assert rule.lossless == (kappa == 1)
    if kappa < 1:
        assert rule.options.kappa == pytest.approx(mapping.kappa, rel=1e-5)
        assert f"verifier_accept_k = {rank}" in mapping.lost[0]
    assert make_policy(mapping.policy).largest().num_steps == 4


def test_the_mapped_rule_accepts_what_the_proposal_accepts() -> None:
    """Over random laws: within the tolerance there is above the margin here, rank apart."""
    proposal = Proposal(5, 61, 1.25)
    logits = torch.randn(2000, 61, generator=torch.Generator().manual_seed(0)) * 2
    logp = logits.log_softmax(-1).double()
    draft = torch.randint(0, 61, (2000, 1), generator=torch.Generator().manual_seed(1))
    drop = (logp.amax(-1, keepdim=True) - logp).gather(1, draft)
    theirs = drop <= proposal.accept_tolerance
    ours = (-drop).exp() > margin_of(proposal).kappa
    assert torch.equal(theirs, ours)
    assert 0.01 < theirs.double().mean() < 0.5


@pytest.mark.parametrize("kappa", [1e-6, 0.2, 0.3, 0.999, 1.0, 2.0])
def test_there_and_back(kappa: float) -> None:
    proposal = proposal_of({"kappa": kappa}, vocab_size=61, speculative_tokens=3)
    assert proposal.speculative_tokens == 3
    assert margin_of(proposal).kappa == pytest.approx(min(kappa, 1.0), rel=1e-12)
    assert proposal.lossless == (kappa >= 1)
    assert proposal.verifier_accept_k == (1 if kappa >= 1 else 61)
    assert margin_of(proposal, vocab_size=61).lost == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kappa": 0.0}, "kappa = 0"),
        ({"kappa": -1.0}, "kappa"),
        ({"kappa": 0.2, "exact_between": True}, "exact_between"),
        ({"max_regret": 4.0}, "max_regret"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_a_proposal_cannot_say(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        proposal_of(options, vocab_size=61)


def test_the_default_proposal_is_read(tmp_path: Path) -> None:
    path = head_dialects.speculators_flags(tmp_path)
    data = json.loads((path / "config.json").read_text())
    proposal = read_proposal(data, "x")
    assert proposal == Proposal(3, 5, 1.5)
    Eagle3Checkpoint.load(path).save_as(tmp_path / "out", "speculators", proposal)
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert read_proposal(written, "x") == proposal
    assert read_proposal({"hidden_size": 3}, "x") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"proposal_methods": 3}, "proposal_methods"),
        ({"proposal_methods": []}, "default_proposal_method"),
        ({"default_proposal_method": "sample"}, "sample"),
        ({"proposal_methods": [{"verifier_accept_k": 0}]}, "verifier_accept_k"),
        ({"proposal_methods": [{"accept_tolerance": -1}]}, "accept_tolerance"),
        ({"proposal_methods": [{"accept_tolerance": "low"}]}, "accept_tolerance"),
        ({"proposal_methods": [{"speculative_tokens": True}]}, "speculative_tokens"),
    ],
)
def test_malformed_proposals(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = head_dialects.speculators_flags(tmp_path)
    data = json.loads((path / "config.json").read_text())
    data["speculators_config"] |= change
    with pytest.raises(CheckpointError, match=named):
        read_proposal(data, "x")


def test_a_dialect_without_proposals_refuses_one(tmp_path: Path) -> None:
    head = Eagle3Checkpoint.load(head_dialects.sglang(tmp_path))
    with pytest.raises(ConfigError, match="acceptance"):
        head.save_as(tmp_path / "out", "nvidia", Proposal(3, 5, 1.5))
