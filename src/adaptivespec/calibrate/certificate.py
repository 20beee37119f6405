"""Certificates: what a calibration found, for whom it holds, and how it was found.

A file is JSON. It is read strictly: whatever its own table of tests does not support is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from adaptivespec.calibrate.fit import TestKind
from adaptivespec.calibrate.identity import Weights
from adaptivespec.calibrate.losses import LossKind
from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.core.registry import parse_spec
from adaptivespec.verify import PRESETS, make_rule

__all__ = [
    "STRICT",
    "Certificate",
    "CertificateError",
    "Data",
    "InForce",
    "KappaTest",
    "Mismatch",
    "Settings",
    "least_certified",
    "margin_rule",
]

STRICT = "strict"
_FAMILY = ("margin", *(name for name, rule in PRESETS.items() if rule == "margin"))
_REMEDY = "Certificates are not edited: write a new one with `adaptivespec calibrate`"


class CertificateError(AdaptiveSpecError, ValueError):
    """A certificate cannot be read, or says what its own tests do not support."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class KappaTest(_Model):
    """One kappa that was tested, and what was found."""

    kappa: float = Field(ge=0, lt=1)
    harmed: int | None = Field(
        ge=0, description="prompts: strict right, lossy wrong; null ungraded"
    )
    helped: int | None = Field(ge=0, description="lossy right, strict wrong")
    disagreed: int = Field(ge=0, description="prompts whose final answers differ")
    loss: float = Field(ge=-1, le=1, description="mean loss, on the scale of max_loss")
    upper: float = Field(ge=-1, le=1, description="upper bound of the true loss, at the confidence")
    p_value: float = Field(ge=0, le=1, description='of "the true loss exceeds max_loss"')
    certified: bool = Field(description="p_value <= 1 - confidence, and so for every kappa above")


class Settings(_Model):
    """How the answers were generated."""

    temperature: float = Field(ge=0)
    max_tokens: dict[str, int] = Field(description="of each task")
    stop: dict[str, list[str]] = Field(description="of each task")


class Data(_Model):
    """The prompts."""

    name: str
    digest: str
    options: list[str] = Field(description="of `adaptivespec calibrate`, that name them")
    seed: int = Field(description="of the draw of prompts")


class InForce(NamedTuple):
    """What is about to serve.

    Attributes:
        model, head: its weights; head None where nothing drafts.
        policy: its label; None where none was asked for, and any will do.
        temperature: None where requests choose it.
        words: how a command line names model and head.
    """

    model: Weights
    head: Weights | None
    policy: str | None
    temperature: float | None = 0.0
    words: tuple[str, ...] = ("MODEL", "--draft-model", "HEAD")


class Mismatch(NamedTuple):
    """A difference between a certificate and what is in force."""

    field: str
    certified: str
    in_force: str

    def __str__(self) -> str:
        return f"{self.field} is {self.in_force}, the certificate's {self.certified}"


class Certificate(_Model):
    """The result of a calibration. The guarantee is of ``loss`` at ``kappa``, for these weights."""

    format: Literal[1] = 1
    loss: LossKind
    test: TestKind
    max_loss: float = Field(gt=0, lt=1)
    confidence: float = Field(gt=0, lt=1)
    n: int = Field(ge=1, description="prompts")
    base: str = Field(description="margin rule whose kappa is chosen, with its other options")
    tests: list[KappaTest] = Field(description="in the order in which kappas were tested")
    kappa: float = Field(ge=0, le=1, description="the least that is certified; 1 is strict")
    rule: str = Field(description="spelling of the rule that serves")
    interval: tuple[float, float] | None = Field(
        description="two-sided interval of the loss at kappa, at the confidence; null for strict"
    )
    needed: int | None = Field(ge=1, description="prompts that certify a kappa without any loss")
    policy: str = Field(min_length=1, description="label of the tree policy")
    settings: Settings
    data: Data
    model: Weights
    head: Weights | None
    backend: str
    precision: str
    provenance: dict[str, Any] = Field(description="utc, git, versions, argv")

    @model_validator(mode="after")
    def _supported_by_its_tests(self) -> Certificate:
        delta = 1 - self.confidence
        sure = True
        for index, test in enumerate(self.tests):
            place = f"tests.{index}"
            if index and test.kappa >= self.tests[index - 1].kappa:
                raise _unsupported(f"{place}.kappa", "kappas must be tested from high to low")
            if not sure:
                raise _unsupported(place, "tests go on after one that failed")
            sure = test.p_value <= delta
            if test.certified != sure:
                raise _unsupported(f"{place}.certified", f"its p-value is {test.p_value:g}")
            for name in ("harmed", "helped", "disagreed"):
                if (getattr(test, name) or 0) > self.n:
                    raise _unsupported(f"{place}.{name}", f"there are {self.n} prompts")
            counted = self._loss_of(test)
            if counted is None or not math.isclose(counted, test.loss, abs_tol=1e-9):
                raise _unsupported(f"{place}.loss", "it is not that of its counts")
        least = least_certified([(test.kappa, test.certified) for test in self.tests])
        if self.kappa != least:
            raise _unsupported("kappa", f"its tests certify {least:g}, not {self.kappa:g}")
        if self.rule != margin_rule(self.base, self.kappa):
            raise _unsupported("rule", f"it is not {self.base!r} at kappa {self.kappa:g}")
        return self

    def _loss_of(self, test: KappaTest) -> float | None:
        if self.loss == "disagreement":
            return test.disagreed / self.n
        if test.harmed is None or test.helped is None:
            return None
        return (test.harmed - (test.helped if self.loss == "drop" else 0)) / self.n

    @property
    def lossless(self) -> bool:
        """Whether nothing below kappa 1 was certified."""
        return self.kappa >= 1

    def matches(self, now: InForce) -> list[Mismatch]:
        """Where what is in force is not what was calibrated; empty when the guarantee holds."""
        found = []
        if not self.model.same(now.model):
            found.append(Mismatch("model", str(self.model), str(now.model)))
        if self.head is None or now.head is None:
            if self.head is not now.head:
                found.append(Mismatch("head", _or_none(self.head), _or_none(now.head)))
        elif not self.head.same(now.head):
            found.append(Mismatch("head", str(self.head), str(now.head)))
        if now.policy is not None and now.policy != self.policy:
            found.append(Mismatch("policy", self.policy, now.policy))
        temperature = self.settings.temperature
        if now.temperature is not None and now.temperature != temperature:
            found.append(Mismatch("temperature", f"{temperature:g}", f"{now.temperature:g}"))
        return found

    def write(self, path: Path) -> None:
        """Write the file, in one piece."""
        content = self.model_dump(mode="json")
        content["checksum"] = _checksum(content)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: str | Path, field: str = "rule_config") -> Certificate:
        """Read a file.

        Args:
            field: what named the file, for errors.

        Raises:
            CertificateError: unreadable, no certificate, of another format, or changed since it was
                written; names the place in the file.
        """
        place = Path(path).expanduser()
        try:
            content = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CertificateError(
                f"cannot read {path}: {reason}",
                field=field,
                remedy="Name the certificate.json that `adaptivespec calibrate` wrote",
            ) from error
        if not isinstance(content, dict):
            raise CertificateError(f"{path} holds no certificate", field=field, remedy=_REMEDY)
        checksum = content.pop("checksum", None)
        try:
            certificate = cls.model_validate_json(json.dumps(content))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            cause = first.get("ctx", {}).get("error")
            where, message = ".".join(map(str, first["loc"])), first["msg"]
            if isinstance(cause, AdaptiveSpecError):
                where, message = cause.field or where, cause.message
            raise CertificateError(
                f"{path} is no sound certificate: {where}: {message}", field=field, remedy=_REMEDY
            ) from error
        if checksum != _checksum(content):
            raise CertificateError(
                f"{path} was changed since it was written: checksum", field=field, remedy=_REMEDY
            )
        return certificate


def least_certified(tests: Sequence[tuple[float, bool]]) -> float:
    """The last kappa before the first that is not certified; 1 where the first is not."""
    least = 1.0
    for kappa, certified in tests:
        if not certified:
            break
        least = kappa
    return least


def margin_rule(base: str, kappa: float) -> str:
    """The spelling of a margin rule at `kappa`: ("safe", 0.5) -> "margin:kappa=0.5,..."; 1: strict.

    Raises ConfigError: `base` is no margin rule, brings a kappa, or has an illegal option.
    """
    parsed = parse_spec(base, "rule")
    if parsed.name not in _FAMILY or "kappa" in parsed.keywords or parsed.positional:
        raise ConfigError(
            f"{base!r} is not a margin rule without a kappa",
            field="rule",
            remedy=f"Use {', '.join(_FAMILY)}, with other options than kappa",
        )
    made = make_rule(base, {}, kappa)
    if kappa >= 1:
        return STRICT
    return f"margin:{kappa:g}" if made.label == f"margin:kappa={kappa}" else made.label


def _or_none(weights: Weights | None) -> str:
    return "none" if weights is None else str(weights)


def _unsupported(field: str, message: str) -> CertificateError:
    return CertificateError(message, field=field, remedy=_REMEDY)


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
