"""Entry point of SGLang's plugins (group ``sglang.srt.plugins``): called once in every process.

SGLang logs and swallows what a plugin raises, so that a plugin that failed looks like one that is
not installed. Therefore every way out of here says in the log what happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from adaptivespec.integrations.sglang import algorithm
from adaptivespec.integrations.sglang.seams import (
    TESTED,
    missing_seams,
    sglang_root,
    sglang_version,
)

logger = logging.getLogger(__name__)


def register() -> None:
    """Register the algorithm and the hooks; nothing at all on a release whose seams differ."""
    problems = seam_problems()
    if problems:
        logger.error(
            "AdaptiveSpec is not available: SGLang %s differs from the releases it works with "
            "(%s).\n  %s",
            sglang_version(),
            ", ".join(TESTED),
            "\n  ".join(problems),
        )
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    _register_algorithm()
    enum = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm"
    manager = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
    hooks: dict[str, Callable[..., Any]] = {
        "sglang.srt.sampling.sampling_params.SamplingParams.verify": check_request,
        f"{manager}.update_request_meta_info": report_request,
        f"{enum}.handle_server_args": algorithm.attached_arguments,
        f"{enum}.create_worker": algorithm.attached_worker,
    }
    for target, hook in hooks.items():
        HookRegistry.register(target, hook, HookType.AROUND)


def seam_problems() -> list[str]:
    """What the installed SGLang lacks; empty when the plugin works with it."""
    root = sglang_root()
    return ["sglang is not installed"] if root is None else missing_seams(root)


def check_request(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Hook around ``SamplingParams.verify``: a bad ``custom_params`` is the client's error 400.

    A process that only tokenizes does not know the server's settings, and checks by the defaults;
    what the server forbids besides, the scheduler refuses.
    """
    if getattr(self, "custom_params", None):
        from adaptivespec.integrations.sglang.config import load_config, request_options

        request_options(self.custom_params, algorithm.active_config() or load_config(None))
    return original(self, *args, **kwargs)


def report_request(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Hook around ``TokenizerManager.update_request_meta_info``: ``meta_info["adaptivespec"]``."""
    from adaptivespec.integrations.sglang.reporting import attach_statistics

    return attach_statistics(original, *args, **kwargs)


def _register_algorithm() -> None:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec(algorithm.NAME) is not None:
        return
    spec_class, factory = algorithm.make_algorithm()
    SpeculativeAlgorithm.register(algorithm.NAME, supports_overlap=True, spec_class=spec_class)(
        factory
    )
