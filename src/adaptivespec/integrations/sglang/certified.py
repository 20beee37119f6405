"""`rule_config`: a server's rule and policy from a certificate, where it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from adaptivespec.calibrate.certificate import Certificate, CertificateError, InForce
from adaptivespec.calibrate.identity import Weights, weights_at
from adaptivespec.calibrate.rule_config import rule_from
from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy

if TYPE_CHECKING:
    from adaptivespec.integrations.sglang.config import PluginConfig

__all__ = ["Served", "certificate_at", "serve_by"]


class Served(NamedTuple):
    """Settings as they are in force.

    Attributes:
        config: with the rule and the policy of the certificate.
        temperature: the one that the server's own rule is for; None for any.
        notes: how model and head were compared with the certificate.
        warning: why the certificate does not hold; empty where it does.
    """

    config: PluginConfig
    temperature: float | None = None
    notes: tuple[str, ...] = ()
    warning: str = ""


def certificate_at(path: str) -> Certificate:
    """The certificate of a file; ConfigError, its field ``rule_config``, where it is none."""
    try:
        return Certificate.read(path)
    except CertificateError as error:
        raise ConfigError(error.message, field="rule_config", remedy=error.remedy) from None


def serve_by(config: PluginConfig, args: Any, policy: str) -> Served:
    """The settings with the rule of ``rule_config``; the same where it is not set.

    Args:
        args: SGLang's arguments; model and draft model are compared by digest where their paths are
            on this disk, else by name.
        policy: the policy as the settings and SGLang's flags spell it; the certificate's is taken
            unless ``policy`` is set.
    """
    if config.rule_config is None:
        return Served(config)
    certificate = certificate_at(config.rule_config)
    paths = str(args.model_path), str(args.speculative_draft_model_path)
    model, head = (weights_at(path, path) for path in paths)
    asked = "policy" in config.model_fields_set or not _serves(certificate.policy)
    label = make_policy(policy).label if asked else None
    words = paths[0], "--draft-model", paths[1]
    now = InForce(model, head, label, None, words)
    ruling = rule_from(certificate, now, config.rule_config, warn=False)
    changes: dict[str, Any] = {"rule": ruling.rule}
    if not asked and ruling.policy is not None:
        changes["policy"] = ruling.policy
    return Served(
        config.model_copy(update=changes),
        certificate.settings.temperature if ruling.rule != "strict" else None,
        (_compared("model", model, certificate.model), _compared("head", head, certificate.head)),
        ruling.warning,
    )


def _serves(policy: str) -> bool:
    """Whether a policy works inside SGLang."""
    from adaptivespec.integrations.sglang.policies import make_batch_policy

    try:
        make_batch_policy(policy)
    except ConfigError:
        return False
    return True


def _compared(what: str, here: Weights, there: Weights | None) -> str:
    by = "digest" if there is not None and here.digest and there.digest else "name"
    return f"{what} compared by {by}: {here}"
