"""What a certificate makes of a rule: its own where it holds, strict where it does not."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

from adaptivespec.calibrate.certificate import STRICT, Certificate, InForce, Mismatch
from adaptivespec.core.errors import FallbackWarning

__all__ = ["Ruling", "calibrate_command", "rule_from"]


@dataclass(frozen=True)
class Ruling:
    """The rule and policy to serve by.

    Attributes:
        rule: the certificate's, or "strict" where it does not hold.
        policy: the certificate's label where its lossy rule serves; else what was asked for, or
            None where nothing was.
        mismatches: why the certificate does not hold.
        warning: the same in words, with the remedy; empty where it holds.
    """

    rule: str
    policy: str | None
    mismatches: tuple[Mismatch, ...] = ()
    warning: str = ""


def rule_from(
    certificate: Certificate, now: InForce, where: str | Path = "it", warn: bool = True
) -> Ruling:
    """What `--rule-config` means for what is in force.

    Args:
        where: the file, for the warning.
        warn: give a FallbackWarning where the certificate does not hold; else it is only returned.
    """
    if certificate.lossless:  # strict is what it is whatever is in force
        return Ruling(STRICT, now.policy)
    mismatches = tuple(certificate.matches(now))
    if not mismatches:
        return Ruling(certificate.rule, certificate.policy)
    text = (
        f"strict serves, because the certificate {where} does not hold here: "
        f"{'; '.join(map(str, mismatches))}. {_remedy(certificate, now, mismatches)}"
    )
    if warn:
        warnings.warn(text, FallbackWarning, stacklevel=3)
    return Ruling(STRICT, now.policy, mismatches, text)


def _remedy(certificate: Certificate, now: InForce, mismatches: tuple[Mismatch, ...]) -> str:
    if {mismatch.field for mismatch in mismatches} == {"temperature"}:
        return f"Use temperature {certificate.settings.temperature:g}"
    if now.head is None:
        return f"Give the draft head with --draft-model: {certificate.head}"
    if now.policy == "none":
        return f"Use policy {certificate.policy}"
    return f"Calibrate anew: {calibrate_command(certificate, now)}"


def calibrate_command(certificate: Certificate, now: InForce) -> str:
    """The command that makes such a certificate for what is in force."""
    words = ["adaptivespec", "calibrate", *now.words]
    words += [*certificate.data.options, "--policy", now.policy or certificate.policy]
    words += ["--loss", certificate.loss, "--max-drop", f"{100 * certificate.max_loss:g}%"]
    words += ["--confidence", f"{100 * certificate.confidence:g}%", "--output", "calibration"]
    return shlex.join(words)
