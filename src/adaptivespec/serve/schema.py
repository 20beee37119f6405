"""Every field of a request: those that are honoured, and those that may only ask for nothing.

The description of a field says what is legal; errors quote it. null means "not given" everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Chat", "Completion", "Named", "Shared"]

Id = Annotated[int, Field(ge=0)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(_Model):
    """Of streams; what else OpenAI and vLLM have here may only be off."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: bool = False


class Named(_Model):
    """A rule or a policy with its options, in place of one string."""

    name: str = Field(min_length=1, max_length=100)
    options: dict[str, Any] = Field(default_factory=dict)


_SPEC = (
    'text such as "margin:0.2" or an object such as '
    '{"name": "margin", "options": {"kappa": 0.2}}; `adaptivespec rules` and `adaptivespec '
    "policies` list them"
)


class Shared(_Model):
    """Fields of both endpoints."""

    #: Fields that are known and not honoured -> the values that ask for nothing.
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "add_special_tokens": (False,),
        "allowed_token_ids": (),
        "bad_words": ([],),
        "cache_salt": (),
        "early_stopping": (False,),
        "guided_choice": (),
        "guided_grammar": (),
        "guided_json": (),
        "guided_regex": (),
        "include_stop_str_in_output": (False,),
        "kv_transfer_params": (),
        "length_penalty": (1,),
        "logits_processors": ([],),
        "metadata": ({},),
        "priority": (0,),
        "prompt_cache_key": (),
        "prompt_logprobs": (),
        "response_format": ({"type": "text"},),
        "return_token_ids": (False,),
        "return_tokens_as_token_ids": (False,),
        "safety_identifier": (),
        "service_tier": ("auto", "default"),
        "skip_special_tokens": (True,),
        "spaces_between_special_tokens": (True,),
        "store": (False,),
        "structured_outputs": (),
        "truncate_prompt_tokens": (),
        "use_beam_search": (False,),
        "vllm_xargs": ({},),
    }

    model: str | None = Field(None, max_length=500, description="the name of a served model")
    max_tokens: int | None = Field(None, ge=1, description="an integer of at least 1")
    temperature: float | None = Field(None, ge=0, description="a number of at least 0; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="a number in (0, 1]")
    top_k: int = Field(0, ge=-1, description="an integer of at least 1; 0 and -1 turn it off")
    min_p: float = Field(0.0, ge=0, le=1, description="a number in [0, 1]")
    n: int = Field(1, ge=1, le=16, description="an integer in [1, 16]")
    best_of: int | None = Field(None, description="the same as n")
    seed: int | None = Field(None, description="an integer")
    stop: Annotated[list[Stop], Field(max_length=16)] | Stop = Field(
        [], description="a text, or a list of at most 16 texts, of 1 to 1000 characters each"
    )
    stop_token_ids: list[Id] = Field(
        [], max_length=1000, description="a list of at most 1000 token ids"
    )
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="a number in [-2, 2]")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="a number in [-2, 2]")
    repetition_penalty: float = Field(
        1.0, ge=0.01, le=100, description="a number in [0.01, 100]; 1 turns it off"
    )
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="an object of token ids, as text, to numbers in [-100, 100]"
    )
    min_tokens: int = Field(0, ge=0, description="an integer in [0, max_tokens]")
    ignore_eos: bool = Field(False, description="true or false")
    stream: bool = Field(False, description="true or false")
    stream_options: StreamOptions | None = Field(
        None, description='an object that may hold "include_usage": true'
    )
    user: str = Field("", max_length=512, description="a text of at most 512 characters")
    kappa: float | None = Field(None, ge=0, description="a number of at least 0")
    rule: Annotated[str, Field(max_length=500)] | Named | None = Field(None, description=_SPEC)
    policy: Annotated[str, Field(max_length=500)] | Named | None = Field(None, description=_SPEC)
    return_trace: bool = Field(False, description="true or false")


class Chat(Shared):
    """Fields of /v1/chat/completions."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Shared.neutral,
        "add_generation_prompt": (True,),
        "audio": (),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "continue_final_message": (False,),
        "documents": ([],),
        "echo": (False,),
        "function_call": ("none",),
        "functions": ([],),
        "include_reasoning": (True,),
        "modalities": (["text"],),
        "moderation": (),
        "parallel_tool_calls": (True, False),
        "prediction": (),
        "prompt_cache_options": ({},),
        "prompt_cache_retention": (),
        "reasoning_effort": ("none",),
        "tool_choice": ("none",),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    }

    messages: list[Any] = Field(
        min_length=1,
        description='a list of messages such as [{"role": "user", "content": "Hello"}]',
    )
    max_completion_tokens: int | None = Field(None, ge=1, description="an integer of at least 1")
    logprobs: bool = Field(False, description="true or false")
    top_logprobs: int = Field(
        0, ge=0, le=20, description="an integer in [0, 20], with logprobs true"
    )


class Completion(Shared):
    """Fields of /v1/completions."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {**Shared.neutral, "suffix": ("",)}

    prompt: (
        str
        | Annotated[list[Id], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[Annotated[list[Id], Field(min_length=1)]], Field(min_length=1)]
    ) = Field(description="a text, a list of texts, a list of token ids or a list of such lists")
    logprobs: int | None = Field(None, ge=0, le=20, description="an integer in [0, 20]")
    echo: bool = Field(False, description="true or false, and false with logprobs")
