"""Norm flags of a head: every combination against a reference, and none without effect."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from adaptivespec.core.errors import CheckpointError
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.eagle3_config import FLAGS
from adaptivespec.draft.eagle3_native import serves
from adaptivespec.engine.loading import drafter_for
from adaptivespec.policy.base import TreePlan
from adaptivespec.train.head.model import Eagle3Module
from fakes import head_dialects, tiny
from fakes.reference_head import chain, chain_through_drafter, flagged, ready

Flags = dict[str, bool]


def combinations() -> list[Flags]:
    rows = [
        dict(zip(FLAGS, row, strict=True))
        for row in itertools.product([False, True], repeat=len(FLAGS))
    ]
    return [
        row
        for row in rows
        if not (row["norm_before_fc"] and row["fc_norm"])
        and not (row["norm_output"] and not row["use_last_layernorm"])
    ]


@pytest.mark.parametrize(
    "flags", combinations(), ids=lambda f: "".join("01"[v] for v in f.values())
)
def test_every_combination_equals_the_reference(flags: Flags) -> None:
    head = flagged(**flags)
    torch.testing.assert_close(chain_through_drafter(head), chain(head), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_drafted_chain_is_the_reference_s(flag: str) -> None:
    head = flagged(**turned(flag))
    drafter, state = ready(head)
    tree = drafter.draft(state, TreePlan(3, 1, 4)).tree
    tokens = tree.token.tolist()[1:]
    laws = chain(head, tokens[:2]).log_softmax(-1)
    best = laws.max(-1)
    assert head.target_ids[best.indices].tolist() == tokens
    torch.testing.assert_close(tree.logq[1:], best.values, atol=2e-4, rtol=1e-4)


#: The first two logits after the root and after the second drafted token, from the reference.
GOLDEN = {
    "plain": (1.4583, 0.0693, -0.4484, -3.1609),
    "norm_before_residual": (3.0761, 0.7170, -5.5632, -5.8496),
    "norm_before_fc": (3.8538, 0.5855, 2.0954, -0.2874),
    "fc_norm": (0.5044, -0.5316, -3.0127, -4.8990),
    "norm_output": (1.4583, 0.0693, -4.2020, -2.2482),
    "use_input_layernorm_in_first_layer": (1.4003, -1.7392, 0.6434, -1.5734),
    "use_last_layernorm": (10.1953, 0.1316, -7.7127, -36.9590),
}


@pytest.mark.parametrize("flag", GOLDEN)
def test_golden_values(flag: str) -> None:
    head = flagged(**({flag: not flag.startswith("use_")} if flag != "plain" else {}))
    logits = chain_through_drafter(head)[[0, 2], :2].flatten().tolist()
    assert logits == pytest.approx(GOLDEN[flag], abs=2e-3)


@pytest.mark.parametrize("flag", FLAGS)
def test_flipping_a_flag_changes_the_logits(flag: str) -> None:
    plain, flipped = (chain_through_drafter(flagged(**f)) for f in ({}, turned(flag)))
    # What is fed back is not yet read by the first row.
    changed = (plain - flipped).abs().amax(-1) > 1e-2
    assert changed.tolist() == [flag != "norm_output", True, True]


def turned(flag: str) -> Flags:
    return {flag: not flag.startswith("use_")}


@pytest.mark.parametrize("flag", FLAGS)
def test_what_knows_no_flags_refuses_them_by_name(flag: str) -> None:
    head = flagged(**turned(flag))
    assert not serves(head.config)
    assert serves(flagged(hidden_size=32, intermediate_size=64).config)
    with pytest.raises(CheckpointError, match=flag):
        Eagle3Module(head, tiny.target().model.embedding, tiny.MAX_LEN)


def test_flags_are_read_wherever_they_stand(tmp_path: Path) -> None:
    path = head_dialects.speculators_flags(tmp_path / "a")
    config = Eagle3Checkpoint.load(path).config
    assert config.flags() == {"norm_before_residual": True, "norm_before_fc": True}
    sglang = head_dialects.sglang(tmp_path / "b")
    head_dialects.edit_config(sglang, norm_before_residual=True, norm_output=True)
    assert set(Eagle3Checkpoint.load(sglang).config.flags()) == {
        "norm_before_residual",
        "norm_output",
    }
    nvidia = head_dialects.nvidia(tmp_path / "c")
    head_dialects.edit_config(nvidia, eagle_config={"return_hidden_post_norm": True})
    assert Eagle3Checkpoint.load(nvidia).config.flags() == {"norm_output": True}
    head_dialects.edit_config(nvidia, eagle_config={"use_input_layernorm_in_first_layer": False})
    with pytest.raises(CheckpointError, match=r"1 unexpected: layers\.0\.input_layernorm\.weight"):
        Eagle3Checkpoint.load(nvidia)


def test_a_flagged_head_beside_a_target(tmp_path: Path) -> None:
    head = flagged(norm_before_residual=True)
    drafter = drafter_for(tiny.target(), head)
    assert drafter.config == head.config
