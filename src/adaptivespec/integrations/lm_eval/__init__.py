"""EleutherAI's lm-evaluation-harness on our engine: the model "adaptivespec".

lm-eval 0.4.13 finds no models of other packages, so its command has to be started through us, with
all of its own options: ``python -m adaptivespec.integrations.lm_eval --model adaptivespec ...``.
Programs call ``register()`` and then lm-eval as usual.
"""

from __future__ import annotations

__all__ = ["NAME", "register"]

NAME = "adaptivespec"


def register() -> None:
    """Make the model "adaptivespec" known to lm-eval, in this process; again is no harm.

    Raises:
        ImportError: lm-eval is not installed.
    """
    from lm_eval.api.registry import MODEL_REGISTRY, register_model

    from adaptivespec.integrations.lm_eval.model import AdaptiveSpecLM

    if NAME not in MODEL_REGISTRY:
        register_model(NAME)(AdaptiveSpecLM)
