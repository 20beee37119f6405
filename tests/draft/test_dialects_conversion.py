"""Heads from one dialect into another: every tensor as it was, or a refusal by name."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.dialects import DIALECTS
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.heads import Head
from fakes import head_dialects
from fakes.reference_head import flagged


def load(path: Path) -> Eagle3Checkpoint:
    return Eagle3Checkpoint.load(path, allow_pickles=True)


PLAIN = ["official", "speculators", "sglang", "nvidia"]


def plain(path: Path) -> Eagle3Checkpoint:
    return load(head_dialects.official(path / "plain", pickled=False))


@pytest.mark.parametrize(("start", "end"), list(itertools.product(PLAIN, PLAIN)))
def test_round_trips_between_all_pairs(start: str, end: str, tmp_path: Path) -> None:
    first = plain(tmp_path)
    first.save_as(tmp_path / "start", start)
    load(tmp_path / "start").save_as(tmp_path / "end", end)
    load(tmp_path / "end").save_as(tmp_path / "back", start)
    assert Head.open(tmp_path / "end").dialect.name == end
    for place in ("end", "back"):
        again = load(tmp_path / place)
        assert again.config == first.config
        assert again.tensors.keys() == first.tensors.keys()
        for name, tensor in first.tensors.items():
            assert again.tensors[name].dtype == tensor.dtype
            assert torch.equal(again.tensors[name], tensor), name
    same = [(tmp_path / place / "config.json").read_text() for place in ("start", "back")]
    assert same[0] == same[1]
    files = [load_file(tmp_path / p / "model.safetensors").keys() for p in ("start", "back")]
    assert files[0] == files[1]


@pytest.mark.parametrize("name", list(head_dialects.WHOLE))
@pytest.mark.parametrize("to", list(DIALECTS))
def test_others_checkpoints_convert_or_are_refused_by_name(
    name: str, to: str, tmp_path: Path
) -> None:
    head = load(head_dialects.WHOLE[name](tmp_path / name))
    refused = [flag for flag in head.config.flags() if flag not in DIALECTS[to].flags]
    if to == "official" and head.config.tap_layers is not None:
        refused.append("tapped layers")
    if refused:
        with pytest.raises(ConfigError, match="cannot say") as caught:
            head.save_as(tmp_path / "out", to)
        assert all(word in str(caught.value) for word in refused)
        assert not (tmp_path / "out").exists()
        return
    head.save_as(tmp_path / "out", to)
    again = load(tmp_path / "out")
    wanted = head.config if to == "speculators" else replace(head.config, target_name=None)
    assert again.config == wanted
    assert all(torch.equal(t, again.tensors[n]) for n, t in head.tensors.items())


def test_every_flag_of_a_dialect_survives_it(tmp_path: Path) -> None:
    for name, dialect in DIALECTS.items():
        for flag in dialect.flags:
            head = flagged(**{flag: not flag.startswith("use_")})
            head.save_as(tmp_path / f"{name}-{flag}", name)
            assert load(tmp_path / f"{name}-{flag}").config == head.config


def test_unknown_dialects(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="official"):
        plain(tmp_path).save_as(tmp_path / "out", "medusa")
