"""The algorithm ADAPTIVESPEC as SGLang's arguments see it: checked, and filled in.

Either under its own name (``--speculative-algorithm ADAPTIVESPEC``) or attached to EAGLE3, whose
worker it then replaces. SGLang asks it for EAGLE3's answers in everything else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import parse_spec
from adaptivespec.integrations.sglang.certified import Served, serve_by
from adaptivespec.integrations.sglang.config import PluginConfig, describe, load_config
from adaptivespec.policy.costs import CostProfile

if TYPE_CHECKING:
    from adaptivespec.integrations.sglang.policies import BatchPolicy

NAME = "ADAPTIVESPEC"
CONFIG_VARIABLE = "ADAPTIVESPEC_CONFIG"
CONFIG_FLAG = "speculative_adaptive_config"

logger = logging.getLogger(__name__)

# A tree with several branches reads KV pages per branch; only these backends do so.
_PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_MAX_RUNNING_REQUESTS = 48  # SGLang's own default for EAGLE
_OWN = {  # answered here, or by CustomSpecAlgo, rather than as EAGLE3 does
    "register",
    "from_string",
    "create_worker",
    "handle_server_args",
    "resolve_max_speculative_num_draft_tokens",
    "get_platform_worker_cls",
    "supports_mixed_chunk",
}

_active: PluginConfig | None = None


def active_config() -> PluginConfig | None:
    """The settings of the server that this process launched; None when the plugin is idle."""
    return _active


def read_config(args: Any) -> PluginConfig:
    """The settings: ``--speculative-adaptive-config`` first, then ``ADAPTIVESPEC_CONFIG``.

    Args:
        args: SGLang's arguments, or any view of them.
    """
    flag = getattr(args, CONFIG_FLAG, None)
    if flag:
        return load_config(flag, "--speculative-adaptive-config")
    return load_config(os.environ.get(CONFIG_VARIABLE), CONFIG_VARIABLE)


def served_config(config: PluginConfig, args: Any) -> Served:
    """The settings in force: those of ``read_config`` with the rule of a certificate, if any."""
    return serve_by(config, args, policy_spec(config, args))


def policy_spec(config: PluginConfig, args: Any) -> str:
    """The policy; ``static`` alone takes its triple from SGLang's own flags, if they are given."""
    steps, topk = args.speculative_num_steps, args.speculative_eagle_topk
    tokens = args.speculative_num_draft_tokens
    if config.policy != "static" or steps is None or topk is None:
        return config.policy
    return f"static:{steps},{topk},{steps + 1 if topk == 1 else tokens}"


def server_policy(config: PluginConfig, args: Any) -> BatchPolicy:
    """The policy of a server. One that never changes its tree keeps it for large batches too."""
    from adaptivespec.integrations.sglang.policies import make_batch_policy

    spec = policy_spec(config, args)
    adapts = parse_spec(spec, "policy").name not in ("static", "chain")
    return make_batch_policy(
        spec,
        combine=config.combine,
        costs=None if config.costs is None else CostProfile.parse(config.costs),
        max_batch=config.max_batch if adapts else None,
        large_batch=config.large_batch if adapts else None,
        hold=config.hold,
    )


def settle(args: Any, config: PluginConfig) -> dict[str, Any]:
    """Check a server's arguments; the fields that must change, with their values.

    Raises ConfigError naming the argument that makes adaptive speculation impossible.
    """
    from adaptivespec.integrations.sglang.policies import largest

    served = served_config(config, args)
    triples = server_policy(served.config, args).triples
    steps, topk, tokens = largest(triples)
    _refuse(args, topk)
    fields: dict[str, Any] = {
        # Every reservation is made for the largest tree; a round takes what its triple needs.
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
        # A mixed batch decodes running requests one token at a time, past the verifier.
        "enable_mixed_chunk": False,
    }
    if args.max_running_requests is None:
        fields["max_running_requests"] = _MAX_RUNNING_REQUESTS
    if args.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        # Overlap needs Triton kernels, which on a CPU run in Triton's interpreter only.
        fields["disable_overlap_schedule"] = True
    _announce(served, triples, args)
    return fields


def _refuse(args: Any, topk: int) -> None:
    """Raise for every argument that the plugin cannot serve."""

    def on(name: str) -> bool:
        return bool(getattr(args, name, None))

    def above_one(name: str) -> bool:
        return (getattr(args, name, None) or 1) > 1

    drops = "one tree shape a round is chosen for the whole batch, and ranks must agree on it"
    refused = [
        (on("enable_dp_attention") or above_one("attn_dp_size"), "--enable-dp-attention", drops),
        (above_one("pp_size"), "--pp-size", "pipeline stages do not exchange tree shapes"),
        (on("enable_multi_layer_eagle"), "--enable-multi-layer-eagle", "it has its own worker"),
        (on("enable_two_batch_overlap"), "--enable-two-batch-overlap", "it wraps the backends"),
        (on("enable_pdmux"), "--enable-pdmux", "it keeps a set of backends of its own"),
        (
            on("speculative_use_rejection_sampling"),
            "--speculative-use-rejection-sampling",
            "the margin rule draws the target's own token and then overrides rejections",
        ),
        (
            on("speculative_adaptive"),
            "--speculative-adaptive",
            "it is SGLang's own policy; choose one of the two",
        ),
        (
            on("enable_custom_logit_processor"),
            "--enable-custom-logit-processor",
            "SGLang does not run such processors on a tree, so they would be ignored",
        ),
        (on("enable_watermark"), "--enable-watermark", "a promotion would break the mark"),
        (
            any(getattr(args, f"speculative_accept_threshold_{x}", 1.0) != 1 for x in _THRESHOLDS),
            "--speculative-accept-threshold-single/-acc",
            "the margin rule takes their place; set its kappa",
        ),
    ]
    for found, argument, why in refused:
        if found:
            raise ConfigError(
                f"does not work with {NAME}: {why}", field=argument, remedy="Leave it out"
            )
    if not args.speculative_draft_model_path:
        raise ConfigError(
            f"{NAME} needs a draft head",
            field="--speculative-draft-model-path",
            remedy="Give an EAGLE-3 head that was trained for this model",
        )
    backend = args.attention_backend
    if topk > 1 and (args.page_size or 1) > 1 and backend not in _PAGED_TREE_BACKENDS:
        raise ConfigError(
            f"{args.page_size} with trees of topk {topk} needs the attention backend "
            f"{', '.join(_PAGED_TREE_BACKENDS)}; it is {backend}",
            field="--page-size",
            remedy='Use page size 1, one of these backends, or chains ("policy": "chain:5")',
        )
    if topk > 1 and "trtllm_mha" in (backend, getattr(args, "decode_attention_backend", None)):
        raise ConfigError(
            f"trtllm_mha verifies chains only, and the policy drafts trees of topk {topk}",
            field="--attention-backend",
            remedy='Use another backend, or chains ("policy": "chain:5")',
        )


_THRESHOLDS = ("single", "acc")


def _announce(served: Served, triples: tuple[Any, ...], args: Any) -> None:
    """Log every setting, defaults included, and what became of a certificate."""
    global _active
    config = _active = served.config
    flags = (
        args.speculative_num_steps,
        args.speculative_eagle_topk,
        args.speculative_num_draft_tokens,
    )
    logger.info("%s settings:", NAME)
    for name, value in describe(config):
        logger.info("  %-16s %s", name, value)
    logger.info("  %-16s %s", "triples", " ".join(str(triple) for triple in triples))
    for note in served.notes:
        logger.info("  %-16s %s", "rule_config", note)
    if served.warning:
        logger.warning("%s", served.warning)
    if any(flag is not None for flag in flags) and tuple(flags) not in triples:
        logger.warning(
            "--speculative-num-steps, -eagle-topk and -num-draft-tokens are replaced by the "
            "triples of policy %s; use policy static to keep them",
            config.policy,
        )


def make_algorithm() -> tuple[type[Any], Callable[[Any], type[Any]]]:
    """(class for ``SpeculativeAlgorithm.register``, worker factory)."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    class AdaptiveSpecAlgorithm(CustomSpecAlgo):  # type: ignore[misc]
        """Answers as EAGLE3 does, except for its arguments and its worker."""

        def handle_server_args(self, server_args: Any) -> None:
            for field, value in settle(server_args, read_config(server_args)).items():
                setattr(server_args, field, value)

    # CustomSpecAlgo lacks some of the enum's methods (create_future_map, need_topk, ...).
    for name, member in vars(SpeculativeAlgorithm).items():
        public = callable(member) and not name.startswith("_") and name not in _OWN
        if public and not isinstance(member, SpeculativeAlgorithm):
            setattr(AdaptiveSpecAlgorithm, name, _as_eagle3(name))
    return AdaptiveSpecAlgorithm, worker_class


def _as_eagle3(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        return getattr(SpeculativeAlgorithm.EAGLE3, name)(*args, **kwargs)

    method.__name__ = name
    return method


def worker_class(server_args: Any = None) -> type[Any]:
    """The worker, imported when a scheduler asks for it."""
    from adaptivespec.integrations.sglang.worker import AdaptiveSpecWorker

    return AdaptiveSpecWorker


def attached_arguments(original: Callable[..., Any], self: Any, server_args: Any) -> Any:
    """Hook around ``SpeculativeAlgorithm.handle_server_args``: settle EAGLE3's arguments first."""
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view

    view = resolving_view(server_args)
    if _attached(self, view):
        declare_resolution(server_args, "adaptivespec", **settle(view, read_config(view)))
    return original(self, server_args)


def attached_worker(original: Callable[..., Any], self: Any, server_args: Any) -> Any:
    """Hook around ``SpeculativeAlgorithm.create_worker``: our worker in EAGLE3's place."""
    from sglang.srt.arg_groups.overrides import resolving_view

    if _attached(self, resolving_view(server_args)):
        return worker_class()
    return original(self, server_args)


def _attached(algorithm: Any, args: Any) -> bool:
    return algorithm.name == "EAGLE3" and read_config(args).attach
