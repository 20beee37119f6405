"""Options of decoding: the verification rule, the draft policy, and sampling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptivespec.cli.options import SAMPLING, SPECULATION, option
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.calibrate.certificate import Certificate
    from adaptivespec.engine import Engine
    from adaptivespec.verify.base import Rule

__all__ = ["SamplingOptions", "SpeculationOptions", "parse_pairs"]


@dataclass(frozen=True, kw_only=True)
class SpeculationOptions:
    """The verification rule and the draft policy."""

    rule: Annotated[
        str | None,
        option(
            "--rule",
            "-r",
            panel=SPECULATION,
            env="RULE",
            help="What drafted tokens are accepted: strict (lossless), margin, a preset (paper, "
            "safe) or another; see `adaptivespec rules`. With options: margin:0.2, "
            "fly:window=6,theta=0.3.",
            show_default="strict",
        ),
    ] = None
    kappa: Annotated[
        float | None,
        option(
            "--kappa",
            "-k",
            panel=SPECULATION,
            env="KAPPA",
            help="Threshold of the margin rule, 0 and up: at 1 nothing is promoted, at 0 any "
            "drafted token may be.",
        ),
    ] = None
    rule_option: Annotated[
        list[str],
        option(
            "--rule-option",
            panel=SPECULATION,
            help="Another option of the rule, as in max_regret=4. Repeatable. "
            "`adaptivespec rules NAME` lists them.",
            metavar="NAME=VALUE",
        ),
    ] = field(default_factory=list)
    rule_config: Annotated[
        Path | None,
        option(
            "--rule-config",
            panel=SPECULATION,
            env="RULE_CONFIG",
            help="A certificate of `adaptivespec calibrate`: its rule and policy serve. Where it "
            "is of another model, head, policy or temperature, strict does.",
            metavar="FILE",
        ),
    ] = None
    policy: Annotated[
        str,
        option(
            "--policy",
            panel=SPECULATION,
            env="POLICY",
            help="How the draft tree is shaped: auto, none, chain, static, eagle2, dcs or another; "
            "see `adaptivespec policies`. With options: chain:3, static:5,4,16, "
            "dcs:alpha=0.2,patience=3.",
        ),
    ] = "auto"
    policy_option: Annotated[
        list[str],
        option(
            "--policy-option",
            panel=SPECULATION,
            help="An option of the policy, as in alpha=0.2. Repeatable. "
            "`adaptivespec policies NAME` lists them.",
            metavar="NAME=VALUE",
        ),
    ] = field(default_factory=list)
    speculative_num_steps: Annotated[
        int | None,
        option(
            "--speculative-num-steps",
            panel=SPECULATION,
            help="SGLang's spelling of the policy static: levels.",
        ),
    ] = None
    speculative_eagle_topk: Annotated[
        int | None,
        option(
            "--speculative-eagle-topk",
            panel=SPECULATION,
            help="SGLang's spelling of the policy static: branches.",
        ),
    ] = None
    speculative_num_draft_tokens: Annotated[
        int | None,
        option(
            "--speculative-num-draft-tokens",
            panel=SPECULATION,
            help="SGLang's spelling of the policy static: nodes verified, root included.",
        ),
    ] = None

    def make_rule(self) -> Rule:
        """The rule, checked before a model is loaded; of a certificate, the one that it allows."""
        from adaptivespec.verify import make_rule

        certificate = self.certificate()
        if certificate is not None:
            return make_rule(certificate.rule)
        return make_rule(self.rule_name, self.rule_options(), self.kappa)

    @property
    def rule_name(self) -> str:
        """The rule as it was spelled; strict where none was asked for."""
        return self.rule or "strict"

    def certificate(self) -> Certificate | None:
        """The content of --rule-config; ConfigError when a rule is given beside it."""
        if self.rule_config is None:
            return None
        from adaptivespec.calibrate.certificate import Certificate

        given = {"--rule": self.rule, "--kappa": self.kappa, "--rule-option": self.rule_option}
        for name, value in given.items():
            if value is not None and value != []:
                raise ConfigError(
                    f"the certificate {self.rule_config} says which rule serves, and {name} is "
                    "given as well",
                    field="rule_config",
                    remedy=f"Leave out one of the two, also where they come from "
                    f"ADAPTIVESPEC_{name[2:].upper().replace('-', '_')} or a configuration file",
                )
        return Certificate.read(self.rule_config)

    def settled(self, engine: Engine, temperature: float) -> SpeculationOptions:
        """These options with the rule and the policy that a certificate means for this engine.

        The same where there is none. Where it does not hold, strict and a FallbackWarning.
        """
        certificate = self.certificate()
        if certificate is None:
            return self
        from adaptivespec.calibrate.rule_config import rule_from
        from adaptivespec.engine.identity import in_force

        name, options = self.policy_choice()
        asked = None if name == "auto" else (name, options)
        now = in_force(engine, asked, temperature)
        ruling = rule_from(certificate, now, str(self.rule_config))
        settled = replace(self, rule=ruling.rule, rule_config=None)
        return settled.with_policy(ruling.policy) if asked is None and ruling.policy else settled

    def with_policy(self, policy: str) -> SpeculationOptions:
        """These options with another policy in place of what they say of one."""
        return replace(
            self,
            policy=policy,
            policy_option=[],
            speculative_num_steps=None,
            speculative_eagle_topk=None,
            speculative_num_draft_tokens=None,
        )

    def check_policy(self) -> None:
        """Raise ConfigError unless the policy exists and takes its options."""
        from adaptivespec.policy import make_policy

        name, options = self.policy_choice()
        if name != "auto":
            make_policy(name, options)
        elif options:
            raise ConfigError(
                f"policy auto takes no options, got {', '.join(options)}",
                field="policy_options",
                remedy="Name the policy as well, as in --policy dcs",
            )

    def rule_options(self) -> dict[str, Any] | None:
        """--rule-option as a mapping, or None."""
        return parse_pairs(self.rule_option, "rule_options") or None

    def policy_choice(self) -> tuple[str, dict[str, Any] | None]:
        """The policy's name and options, SGLang's three spellings included."""
        options = parse_pairs(self.policy_option, "policy_options")
        triple = {
            "num_steps": self.speculative_num_steps,
            "topk": self.speculative_eagle_topk,
            "num_draft_tokens": self.speculative_num_draft_tokens,
        }
        given = {name: value for name, value in triple.items() if value is not None}
        if not given:
            return self.policy, options or None
        if self.policy not in ("auto", "static"):
            raise ConfigError(
                f"--speculative-* describe the policy static, but --policy is {self.policy!r}",
                field="policy",
                remedy="Leave out one of the two",
            )
        return "static", {**options, **given}

    def arguments(self) -> dict[str, Any]:
        """Arguments for `Engine.generate` and its siblings."""
        policy, policy_options = self.policy_choice()
        return {
            "rule": self.rule_name,
            "kappa": self.kappa,
            "rule_options": self.rule_options(),
            "policy": policy,
            "policy_options": policy_options,
        }


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How the target's distribution becomes tokens, and when generation ends."""

    max_tokens: Annotated[
        int, option("--max-tokens", "-n", panel=SAMPLING, env="MAX_TOKENS", help="Tokens at most.")
    ] = 256
    min_tokens: Annotated[
        int, option("--min-tokens", panel=SAMPLING, help="No end before that many tokens.")
    ] = 0
    temperature: Annotated[
        float,
        option(
            "--temperature", "-t", panel=SAMPLING, env="TEMPERATURE", help="0 is greedy decoding."
        ),
    ] = 0.0
    top_p: Annotated[
        float, option("--top-p", panel=SAMPLING, env="TOP_P", help="Nucleus, in (0, 1].")
    ] = 1.0
    top_k: Annotated[
        int, option("--top-k", panel=SAMPLING, env="TOP_K", help="0 is off, 1 is greedy.")
    ] = 0
    min_p: Annotated[
        float, option("--min-p", panel=SAMPLING, env="MIN_P", help="Share of the best, in [0, 1].")
    ] = 0.0
    repetition_penalty: Annotated[
        float, option("--repetition-penalty", panel=SAMPLING, help="Above 0; 1 is off.")
    ] = 1.0
    presence_penalty: Annotated[
        float, option("--presence-penalty", panel=SAMPLING, help="In [-2, 2]; 0 is off.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, option("--frequency-penalty", panel=SAMPLING, help="In [-2, 2]; 0 is off.")
    ] = 0.0
    seed: Annotated[
        int | None,
        option("--seed", "-s", panel=SAMPLING, env="SEED", help="Makes sampling repeatable."),
    ] = None
    stop: Annotated[
        list[str],
        option("--stop", panel=SAMPLING, help="Text that ends the answer. Repeatable."),
    ] = field(default_factory=list)
    ignore_eos: Annotated[
        bool, option("--ignore-eos", panel=SAMPLING, help="Go on to --max-tokens.")
    ] = False

    def check(self) -> None:
        """Raise ConfigError naming the first option out of bounds."""
        from adaptivespec.core.sampling import SamplingParams

        SamplingParams(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Arguments for `Engine.generate` and its siblings."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "stop": tuple(self.stop)}


def parse_pairs(pairs: Sequence[str], field: str) -> dict[str, Any]:
    """["a=1", "b=true"] -> {"a": 1, "b": True}. ConfigError when one has no "=" or comes twice."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ConfigError(
                f"{pair!r} is not NAME=VALUE", field=field, remedy="Write it like max_regret=4"
            )
        if name in parsed:
            raise ConfigError(f"{name} is given twice", field=field, remedy="Give it once")
        parsed[name] = _literal(value.strip())
    return parsed


def _literal(text: str) -> Any:
    """A JSON value where it is one, else the text itself; true, false and none in any case."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
