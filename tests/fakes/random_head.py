"""A random head in the place of a trained one."""

from __future__ import annotations

import atexit
from functools import cache
from tempfile import TemporaryDirectory

import torch

from adaptivespec.verify.base import Rule
from adaptivespec.verify.probe import Probe


def with_head(rule: Rule, vocab: int, hidden: int) -> Rule:
    """The rule, with a random head for such a target and drafter where it needs a trained one."""
    if not rule.trained:
        return rule
    head = _head(rule.name, vocab, hidden, hidden if rule.draft_hidden else 0)
    return type(rule)(rule.options.model_copy(update={"head": head}))


@cache
def _head(kind: str, vocab: int, hidden: int, draft_hidden: int) -> str:
    """Its directory, removed when Python ends."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(hidden + draft_hidden, generator=generator)
    Probe(kind, "none", vocab, hidden, draft_hidden, weight, torch.zeros(1)).save(folder.name)
    return folder.name
