"""What of transformers' arguments can be honoured, and a typed error for each that cannot."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError, ContextLengthError, PromptError
from adaptivespec.engine.jobs import check_shape
from adaptivespec.policy.base import Policy
from adaptivespec.verify.base import Rule

#: Fields of a GenerationConfig that ask for something else than this loop: name -> harmless values.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (None, 1),
    "constraints": (None,),
    "force_words_ids": (None,),
    "penalty_alpha": (None, 0, 0.0),
    "dola_layers": (None,),
    "prompt_lookup_num_tokens": (None,),
    "assistant_early_exit": (None,),
    "use_mtp": (None, False),
    "guidance_scale": (None, 1, 1.0),
    "watermarking_config": (None,),
    "cache_implementation": (None, "dynamic"),
    "use_cache": (None, True),
    "output_scores": (None, False),
    "output_logits": (None, False),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
}
_REMEDIES = {
    "guidance_scale": "Leave it out: its processor runs a model of its own for each token",
    "watermarking_config": "Leave it out: its processor keeps a state that drafts would disturb",
    "cache_implementation": "Leave it out: the loop keeps a cache of its own",
    "use_cache": "Leave it out: the loop keeps a cache of its own",
}
#: What transformers prepares for every decoder, whoever asked for nothing.
_PREPARED = {
    "attention_mask",
    "position_ids",
    "logits_to_keep",
    "cache",
    "past_key_values",
    "cache_position",
    "use_cache",
}
_PLAIN = "Leave it out, or call model.generate without custom_generate"


def caller_of(model: Any) -> Mapping[str, Any]:
    """The arguments of the ``model.generate`` that called our ``generate``; empty without one.

    transformers 5 keeps `streamer` and `assistant_model` from a callable: it shows the prompt to a
    streamer and then drops it. Reading its frame is the only way to honour the one and to refuse
    the other.
    """
    frame = inspect.currentframe()
    while frame is not None:  # a caller may have wrapped ours into a function of its own
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return {name: frame.f_locals.get(name) for name in ("streamer", "assistant_model")}
        frame = frame.f_back
    return {}


def check_arguments(
    model: Any,
    config: Any,
    caller: Mapping[str, Any],
    streamer: Any,
    rows: int,
    model_kwargs: Mapping[str, Any],
) -> None:
    """Raise ConfigError where an argument asks for what speculative decoding cannot give."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise ConfigError("has an encoder; only decoders are served", field="model")
    if caller.get("assistant_model") is not None:
        raise ConfigError(
            "is for transformers' own assisted decoding",
            field="assistant_model",
            remedy="Give draft_model, or leave custom_generate out",
        )
    for name, harmless in _REFUSED.items():
        value = getattr(config, name, None)
        if value not in harmless:
            raise ConfigError(
                f"{value!r} cannot be honoured by speculative decoding",
                field=name,
                remedy=_REMEDIES.get(name, _PLAIN),
            )
    if streamer is not None and rows > 1:
        raise ConfigError(
            f"rows are decoded one after the other, so {rows} cannot share a streamer",
            field="streamer",
            remedy="Give one prompt, and num_return_sequences=1",
        )
    for name in ("cache", "past_key_values"):
        given = model_kwargs.get(name)
        if given is not None and (
            getattr(given, "_is_user_defined", False) or given.get_seq_length() > 0
        ):
            raise ConfigError(
                "the loop keeps a cache of its own", field=name, remedy="Give the whole prompt"
            )
    for name, value in model_kwargs.items():
        if name not in _PREPARED and value is not None:
            raise ConfigError("is not known here", field=name, remedy=_PLAIN)
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and config.max_length > limit:
        raise ContextLengthError(
            f"prompt and answer may have {config.max_length} tokens, the model reads {limit}",
            field="max_length",
            remedy="Give a smaller max_new_tokens, or a shorter prompt",
        )


def prompts_of(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> list[list[int]]:
    """Each row's tokens without the padding on its left.

    Raises:
        ConfigError: a mask or positions that left padding does not explain.
        PromptError: a row without a token.
    """
    mask = model_kwargs.get("attention_mask")
    kept = torch.ones_like(input_ids) if mask is None else mask.to(input_ids.device)
    if kept.shape != input_ids.shape or bool((kept.diff(dim=-1) < 0).any()):
        raise ConfigError(
            "must be 0 for padding on the left and 1 for all else",
            field="attention_mask",
            remedy="Pad on the left: padding_side='left'",
        )
    lengths = kept.sum(-1)
    if input_ids.shape[-1] == 0 or int(lengths.min()) == 0:
        raise PromptError("is empty", field="input_ids", remedy="Give at least one token")
    positions = model_kwargs.get("position_ids")
    if positions is not None:
        own = kept.cumsum(-1) - 1
        if bool(((positions.to(own.device) != own) & (kept > 0)).any()):
            raise ConfigError(
                "must count each row's tokens from 0", field="position_ids", remedy="Leave it out"
            )
    return [ids[-length:] for ids, length in zip(input_ids.tolist(), lengths.tolist(), strict=True)]


def protected_ids(config: Any, vocab_size: int) -> list[int]:
    """Tokens that no lossy rule promotes or overrides: those that begin, end and pad a text."""
    names = ("_bos_token_tensor", "_eos_token_tensor", "_pad_token_tensor")
    given = [getattr(config, name, None) for name in names]
    ids = {int(i) for tensor in given if tensor is not None for i in tensor.flatten()}
    return sorted(i for i in ids if 0 <= i < vocab_size)


def check_rule(rule: Rule, policy: Policy, sampling: bool, drafting: bool) -> None:
    """Raise ConfigError where rule, policy, temperature and drafter do not go together."""
    if sampling and not rule.sampling:
        raise ConfigError(
            f"rule '{rule.name}' is defined at temperature 0 only",
            field="do_sample",
            remedy="Set do_sample=False, or use another rule",
        )
    if policy.needs_draft and not drafting:
        raise ConfigError(
            f"'{policy.name}' drafts, and there is no drafter",
            field="policy",
            remedy="Give draft_model, or use policy none",
        )
    if rule.signals == "hidden":
        raise ConfigError(
            f"rule '{rule.name}' reads hidden states, which a model of transformers does not give",
            field="rule",
            remedy="Use another rule, or Engine with this rule",
        )
    check_shape(rule, policy)
    if policy.needs_costs and policy.costs is None:
        raise ConfigError(
            f"'{policy.name}' has to know what passes of this model cost",
            field="policy",
            remedy="Give a ready-made policy with its `costs` set, or another policy",
        )
