"""The model class that lm-eval runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from lm_eval.api.model import CacheHook, TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm  # type: ignore[import-untyped, import-not-found, unused-ignore]

from adaptivespec import __version__
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.stats import Statistics
from adaptivespec.engine import Engine
from adaptivespec.engine.identity import identity_of
from adaptivespec.engine.loading import read_config
from adaptivespec.engine.scoring import Scorer
from adaptivespec.integrations.lm_eval.requests import (
    continue_from,
    device_of,
    guard_cache,
    sampling_of,
)
from adaptivespec.policy import make_policy
from adaptivespec.verify import make_rule

__all__ = ["AdaptiveSpecLM"]

MAX_TOKENS = 256
log = logging.getLogger(__name__)


class AdaptiveSpecLM(TemplateLM):  # type: ignore[misc, unused-ignore]
    """Our engine behind lm-eval's interface; constructor arguments are its --model_args.

    The rule and the policy take part in generation alone. Log likelihoods, and so multiple-choice
    tasks and perplexities, are the target's own under every rule.

    Args:
        model, draft_model, backend, dtype, threads, max_model_len, cache_dir: as in
            ``Engine.from_pretrained``.
        rule, policy: as in --rule and --policy.
        max_gen_toks: of answers whose task sets no bound.
        seed: of sampled answers; the n-th of a run draws from seed + n.
        add_bos_token: put the bos token before prompts that do not begin with it.
        batch_size, max_batch_size: accepted from lm-eval; requests run one at a time.
        device: "cpu" or "cuda:N"; lm-eval's own default, "cuda:0", is the CPU where there is no GPU
            or the backend has none.
        engine: a ready engine in place of all that loads one.

    Raises:
        ConfigError and what ``Engine.from_pretrained`` raises.
    """

    def __init__(
        self,
        model: str | None = None,
        draft_model: str | None = None,
        rule: str = "strict",
        policy: str = "auto",
        backend: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        max_model_len: int | None = None,
        cache_dir: str | None = None,
        max_gen_toks: int = MAX_TOKENS,
        seed: int = 0,
        add_bos_token: bool = False,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        engine: Engine | None = None,
    ) -> None:
        super().__init__()
        if str(batch_size) not in ("1", "auto"):
            log.warning("requests run one at a time: batch_size %s is not used", batch_size)
        chosen_rule = make_rule(rule)
        self._engine = engine or Engine.from_pretrained(
            model,
            draft_model,
            backend=backend,
            dtype=dtype,
            device=device_of(device, backend),
            threads=threads,
            max_model_len=max_model_len,
            cache_dir=cache_dir,
        )
        if policy == "auto":
            drafts = self._engine.drafter is not None
            policy = self._engine.target.default_policy if drafts else "none"
        self._rule, self._policy = rule, policy
        self._lossless = chosen_rule.lossless
        self._labels = {"rule": chosen_rule.label, "policy": make_policy(policy).label}
        self._engine.prepare(policy)
        self._max_gen_toks, self._seed, self._add_bos = max_gen_toks, seed, add_bos_token
        self._scorer = Scorer(self._engine.target)
        self._stats, self._answers = Statistics(), 0
        self._bos = self._bos_id()
        if add_bos_token and self._bos is None:
            raise ConfigError("the model has no bos token", field="add_bos_token")

    @property
    def eot_token_id(self) -> int:
        ids = self._engine.tokenizer.eos_token_ids
        if not ids:
            raise ConfigError("the tokenizer has no eos token", field="model")
        return ids[0]

    @property
    def prefix_token_id(self) -> int:
        """What stands before text that has no context: bos, else eos."""
        return self.eot_token_id if self._bos is None else self._bos

    @property
    def max_length(self) -> int:
        return self._engine.target.limits.max_model_len

    @property
    def tokenizer_name(self) -> str:
        return self._engine.model_name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        ids = self._engine.tokenizer.encode(string)
        adds = self._add_bos if add_special_tokens is None else add_special_tokens
        if adds and self._bos is not None and ids[:1] != [self._bos]:
            return [self._bos, *ids]
        return ids

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template's source, for lm-eval's records."""
        if isinstance(chat_template, str):
            raise ConfigError(
                f"the model has one template, none called {chat_template!r}",
                field="apply_chat_template",
                remedy="Leave the name out",
            )
        return self._engine.tokenizer.chat_template if chat_template else None

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt of a conversation; without a generation prompt its last message goes on."""
        text = self._engine.tokenizer.render_chat(chat_history, add_generation_prompt)
        if add_generation_prompt:
            return text
        return continue_from(text, chat_history[-1]["content"])

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        totals = []
        for request in tqdm(requests, desc="Scoring texts", disable=disable_tqdm):
            (text,) = request.args
            windows = get_rolling_token_windows(
                self.tok_encode(text, add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = map(make_disjoint_window, windows)
            total = sum(self._scorer.score(context, rest).total for context, rest in pairs)
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            totals.append(total)
        return totals

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        found = []
        for texts, context, continuation in tqdm(
            requests, desc="Scoring continuations", disable=disable_tqdm
        ):
            scores = self._scorer.score(context, continuation)
            answer = scores.total, scores.all_greedy
            self.cache_hook.add_partial("loglikelihood", texts, answer)
            found.append(answer)
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers by the rule and the policy; an argument is honoured, or a ConfigError."""
        texts = []
        for request in tqdm(requests, desc="Answering", disable=disable_tqdm):
            context, asked = request.args
            options = sampling_of(asked, self._max_gen_toks, self._seed + self._answers)
            result = self._engine.generate(
                self.tok_encode(context) or [self.prefix_token_id],
                rule=self._rule,
                policy=self._policy,
                **options,
            )
            self._stats.merge(result.stats)
            self._answers += 1
            if options["temperature"] == 0:  # repeats of a sampled answer must not be one answer
                self.cache_hook.add_partial("generate_until", request.args, result.text)
            texts.append(result.text)
        return texts

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Take part in --use_cache, unless the cache holds the answers of others."""
        if cache_hook.dbdict is not None:
            guard_cache(cache_hook.dbdict, self._identity())
        super().set_cache_hook(cache_hook)

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval's results say of the model, under "config"."""
        info = {**self._identity(), "lossless": self._lossless}
        if self._answers:
            info["generated"] = {"answers": self._answers, **self._stats.as_dict()}
        return info

    def _identity(self) -> dict[str, Any]:
        """All that an answer depends on besides its request."""
        return {
            "adaptivespec": __version__,
            "weights": identity_of(self._engine),
            **self._labels,
            "seed": self._seed,
            "add_bos_token": self._add_bos,
            "default_max_gen_toks": self._max_gen_toks,
            "max_model_len": self.max_length,
        }

    def _bos_id(self) -> int | None:
        path = self._engine.files[0]
        bos = None if path is None else read_config(path).bos_token_id
        return bos if isinstance(bos, int) else None
