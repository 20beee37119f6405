"""How a `speculators` config accepts drafts, and the margin rule that does the same.

Its greedy proposal (`verifier_accept_k`, `accept_tolerance`) takes a draft that is among the
verifier's k likeliest tokens and at most `accept_tolerance` nats below the likeliest one. The
margin rule promotes where p / max p > kappa, that is where the draft lies less than -ln(kappa) nats
below the top: the same test with kappa = exp(-accept_tolerance).

Without a counterpart: a limit by rank (the margin rule has none), and every other option of the
margin rule (the proposal has none). A draft exactly at the tolerance is taken there and not here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptivespec.core.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class Proposal:
    """A greedy proposal of a `speculators` config.

    Attributes:
        speculative_tokens: drafted per step, a chain.
        verifier_accept_k: a draft must be among so many likeliest tokens of the target.
        accept_tolerance: nats that it may lie below the likeliest; counts when k > 1.
    """

    speculative_tokens: int = 5
    verifier_accept_k: int = 1
    accept_tolerance: float = 0.0

    @property
    def lossless(self) -> bool:
        """Whether only the target's own token is ever accepted."""
        return self.verifier_accept_k == 1 or self.accept_tolerance == 0

    def to_dict(self) -> dict[str, Any]:
        """An entry of `proposal_methods`."""
        return {
            "proposal_type": "greedy",
            "speculative_tokens": self.speculative_tokens,
            "verifier_accept_k": self.verifier_accept_k,
            "accept_tolerance": self.accept_tolerance,
        }


@dataclass(frozen=True)
class MarginMapping:
    """A proposal in terms of this package.

    Attributes:
        kappa: of the margin rule; 1 where the proposal is lossless.
        policy: the tree policy that drafts as many tokens.
        lost: what has no counterpart, one sentence each.
    """

    kappa: float
    policy: str
    lost: tuple[str, ...]

    @property
    def rule(self) -> str:
        """As `--rule` takes it."""
        return "strict" if self.kappa >= 1 else f"margin:{self.kappa:.6g}"


def margin_of(proposal: Proposal, vocab_size: int | None = None) -> MarginMapping:
    """The margin rule that accepts what the proposal accepts.

    Args:
        proposal: of a config.
        vocab_size: of the target, where it is known: a rank limit of that size limits nothing.
    """
    lost = []
    if not proposal.lossless and (vocab_size is None or proposal.verifier_accept_k < vocab_size):
        lost.append(
            f"verifier_accept_k = {proposal.verifier_accept_k}: the margin rule has no limit by "
            "rank, so drafts of lower rank within the tolerance are promoted too"
        )
    kappa = 1.0 if proposal.lossless else math.exp(-proposal.accept_tolerance)
    return MarginMapping(kappa, f"chain:{proposal.speculative_tokens}", tuple(lost))


def proposal_of(
    options: Mapping[str, Any], vocab_size: int, speculative_tokens: int = 5
) -> Proposal:
    """The proposal that accepts what a margin rule with these options promotes.

    Args:
        options: of the margin rule, by name.
        vocab_size: of the target; the rank limit is set to it, which limits nothing.
        speculative_tokens: drafted per step.

    Raises:
        ConfigError: an option that is out of bounds, or has no counterpart.
    """
    from pydantic import ValidationError

    from adaptivespec.verify.margin import MarginOptions

    try:
        margin = MarginOptions(**options)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(str(first["msg"]), field=".".join(map(str, first["loc"]))) from error
    if speculative_tokens < 1:
        raise ConfigError(f"must be at least 1, got {speculative_tokens}", field="num_steps")
    unsaid = [name for name in margin.model_dump(exclude_defaults=True) if name != "kappa"]
    if margin.kappa == 0:
        unsaid.append("kappa = 0 (an endless tolerance)")
    if unsaid:
        raise ConfigError(
            f"a speculators proposal cannot say: {', '.join(unsaid)}",
            field="rule",
            remedy="Give kappa in (0, 1] alone",
        )
    if margin.kappa >= 1:
        return Proposal(speculative_tokens)
    return Proposal(speculative_tokens, vocab_size, -math.log(margin.kappa))


def read_proposal(data: Mapping[str, Any], where: str) -> Proposal | None:
    """The default proposal of a `config.json`; None where it has no `speculators_config`.

    Raises:
        CheckpointError: it is malformed, or of a kind other than greedy; names the key.
    """
    section = data.get("speculators_config")
    if section is None:
        return None
    methods = section.get("proposal_methods") if isinstance(section, Mapping) else None
    if not isinstance(methods, list) or not all(isinstance(m, Mapping) for m in methods):
        raise _error(where, "proposal_methods is not a list of objects")
    wanted = section.get("default_proposal_method", "greedy")
    chosen = next((m for m in methods if m.get("proposal_type", "greedy") == wanted), None)
    if chosen is None or wanted != "greedy":
        raise _error(where, f"default_proposal_method is {wanted!r}; only greedy is known")
    count, rank = chosen.get("speculative_tokens", 5), chosen.get("verifier_accept_k", 1)
    tolerance = chosen.get("accept_tolerance", 0.0)
    for name, value in (("speculative_tokens", count), ("verifier_accept_k", rank)):
        if type(value) is not int or value < 1:
            raise _error(where, f"{name} is {value!r}, not a positive integer")
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not 0 <= tolerance < math.inf:
        raise _error(where, f"accept_tolerance is {tolerance!r}, not a number from 0 on")
    return Proposal(count, rank, float(tolerance))


def _error(where: str, problem: str) -> CheckpointError:
    return CheckpointError(f"{where}: speculators_config: {problem}", field="draft_model")
