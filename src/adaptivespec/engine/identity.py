"""Which model, head and precision an engine runs, in terms that other engines share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptivespec.calibrate.certificate import InForce
from adaptivespec.calibrate.identity import Weights, weights_at
from adaptivespec.draft.choice import GRAFT
from adaptivespec.engine.devices import describe
from adaptivespec.engine.loading import SHIPPED_HEADS
from adaptivespec.engine.weights.embedded import EMBEDDED
from adaptivespec.policy import make_policy

if TYPE_CHECKING:
    from adaptivespec.engine.engine import Engine

__all__ = ["head_of", "identity_of", "in_force", "model_of"]


def model_of(engine: Engine) -> Weights:
    """The target's weights: the same on every backend, and in any engine that reads the files."""
    return weights_at(engine.files[0], engine.model_name)


def head_of(engine: Engine) -> Weights | None:
    """The weights of the head or small model that drafts; None where nothing does.

    With n-grams grafted onto it, it is another drafter.
    """
    if engine.drafter is None:
        return None
    weights = weights_at(engine.files[1], engine.head_name or "unnamed")
    if weights.digest is None or not engine.head_name.endswith(GRAFT):
        return weights
    return weights.model_copy(update={"digest": weights.digest + GRAFT})


def identity_of(engine: Engine) -> dict[str, Any]:
    """JSON values: model and head (name, digest; head None without one), backend, precision.

    The digests take some milliseconds; see ``calibrate.identity.digest_of``.
    """
    head = head_of(engine)
    return {
        "model": model_of(engine).model_dump(),
        "head": None if head is None else head.model_dump(),
        "backend": backend_of(engine),
        "precision": engine.dtype,
    }


def backend_of(engine: Engine) -> str:
    """What the target runs on, with the name of the GPU where it is one."""
    target = engine.target
    on = "" if target.device.type == "cpu" else f" on {describe(target.device)}"
    return target.backend + on


def in_force(
    engine: Engine,
    policy: tuple[str, Mapping[str, Any] | None] | None = None,
    temperature: float | None = 0.0,
) -> InForce:
    """What a certificate is compared with.

    Args:
        policy: name and options; None where any will do.
    """
    label = None if policy is None else make_policy(*policy).label
    return InForce(model_of(engine), head_of(engine), label, temperature, _words(engine))


def _words(engine: Engine) -> tuple[str, ...]:
    """Model and head on a command line; what the package brings need not be named."""
    model, head = engine.files
    words = [] if model is None or engine.model_name == EMBEDDED.name else [str(model)]
    name = engine.head_name.removesuffix(GRAFT)
    grafts = GRAFT if name != engine.head_name else ""
    main = "" if name in SHIPPED_HEADS.values() else str(head or name)
    if main or grafts:
        words += ["--draft-model", main + grafts]
    return tuple(words)
