"""The embedded engine: a target, a drafter and a tokenizer behind generate, stream and chat."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.base import Drafter
from adaptivespec.engine.costs import FULL, QUICK, cached, machine_key, measure
from adaptivespec.engine.devices import find_device, room_on
from adaptivespec.engine.drafters import DraftModel
from adaptivespec.engine.jobs import make_job, mask_of
from adaptivespec.engine.loading import Backend, context_limit, read_config
from adaptivespec.engine.result import GenerationResult
from adaptivespec.engine.session import Session
from adaptivespec.engine.stream import Stream
from adaptivespec.engine.target import Target
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights import ProgressCallback, resolve_model
from adaptivespec.engine.weights.store import cache_root
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Policy
from adaptivespec.policy.costs import CostProfile
from adaptivespec.verify.base import Rule

#: Pairs of policy and rule whose memory is kept.
_MOST_MEMORIES = 64


class Engine:
    """Answers prompts with one target model.  Build it with `from_pretrained`.

    The engine itself keeps no conversation: `session()` makes one whose cache is reused when the
    next prompt begins like the last.
    """

    def __init__(
        self,
        target: Target[Any],
        tokenizer: Tokenizer,
        drafter: Drafter[Any] | None,
        model_name: str,
        head_name: str = "",
        cache_dir: str | Path | None = None,
    ) -> None:
        self.target, self.tokenizer, self.drafter = target, tokenizer, drafter
        self.model_name, self.head_name = model_name, head_name
        self.files: tuple[Path | None, Path | None] = None, None  # of model and head
        self._cache_dir = cache_dir
        self._costs: CostProfile | None = None
        vocab = target.limits.vocab_size
        self.special = mask_of(vocab, tokenizer.special_ids)
        self._memories: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._memories_lock = Lock()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | None = None,
        draft_model: str | Path | None = None,
        *,
        backend: str = "auto",
        dtype: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
        max_model_len: int | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        token: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Engine:
        """Load a target and its drafter.

        Args:
            model: None for the embedded SmolLM2-135M-Instruct, a directory, a GGUF file, a hub id.
            draft_model: an EAGLE-3 head or a small model of the same tokenizer, a directory or hub
                id; "ngram" for prompt lookup, "HEAD+ngram" or "+ngram" for both (docs/drafters.md).
                None for the head that the package ships for the embedded model, else prompt
                lookup.
            backend: "torch", "native" for the compiled CPU engine (docs/native.md), or "auto":
                native where it can serve, else torch, with a FallbackWarning that says why. A
                model of no family of ours runs in transformers, if it is installed.
            dtype: of torch "auto" (bfloat16 where the CPU has it, else float32), "bfloat16" or
                "float32"; of native "auto" (8-bit activations) or "exact" (16-bit).
            device: "cpu", or "cuda" or "cuda:N", where torch serves (docs/cuda.md).
            threads: of either backend; None leaves torch's own choice.
            max_model_len: longest sequence in tokens; None is the model's limit.
            revision, token, local_files_only: for hub ids.
            cache_dir: where fetched models are kept.
            progress: called with ProgressEvent while files are fetched, converted or compiled.

        Raises:
            ModelNotFoundError, CheckpointError, DownloadError, DiskFullError, DeviceMemoryError,
                ConfigError: each names the field and the remedy.
        """
        place = find_device(device)
        if threads is not None:
            if threads < 1:
                raise ConfigError(f"must be at least 1, got {threads}", field="threads")
            torch.set_num_threads(threads)
        chosen = Backend.choose(backend, dtype, progress, place)
        hub: dict[str, Any] = {
            "cache_dir": cache_dir,
            "local_files_only": local_files_only,
            "token": token,
            "progress": progress,
        }
        found = resolve_model(model, revision=revision, **hub)
        config = read_config(found.path)
        limit = context_limit(max_model_len, config.max_position_embeddings)
        tokenizer = Tokenizer.from_dir(found.path)
        drafting = DraftModel.find(draft_model, found.name, hub)
        head = drafting.head()
        chosen = chosen.for_model(config, limit)
        with room_on(place):
            target, of_head = chosen.load(found.path, config, limit, head)
            drafter = drafting.drafter(of_head, chosen, target, tokenizer)
        engine = cls(target, tokenizer, drafter, found.name, drafting.name, cache_dir)
        engine.files = found.path, drafting.path
        return engine

    @property
    def dtype(self) -> str:
        """Name of the precision in force."""
        return self.target.precision

    def close(self) -> None:
        """Let go of the weights; the engine cannot be used afterwards."""
        on_gpu = self.target.device.type != "cpu"
        del self.target, self.drafter
        if on_gpu:
            gc.collect()  # captured passes and what they use refer to each other

    def costs(
        self,
        *,
        full: bool = False,
        fresh: bool = False,
        progress: ProgressCallback | None = None,
    ) -> CostProfile:
        """What passes cost on this machine; measured once (in seconds) and kept in the cache.

        Args:
            full: every size at three context lengths, 20 times each; some minutes on a CPU.
            fresh: measure again even where a profile is kept. `full` implies it.
            progress: called while measuring.
        """
        if self._costs is None or full or fresh:
            key = machine_key(self.target, self.model_name, self.head_name)
            name = f"{self.model_name}, {self.dtype}, {torch.get_num_threads()} threads"

            def make() -> CostProfile:
                effort = FULL if full else QUICK
                return measure(self.target, self.drafter, name, effort, progress)

            self._costs = cached(cache_root(self._cache_dir), key, make, full or fresh)
        return self._costs

    def prepare(
        self,
        policy: str | Policy = "auto",
        policy_options: Mapping[str, Any] | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Do now what the first request with this policy would wait for: measure costs."""
        if self.make_policy(policy, policy_options).needs_costs:
            self.costs(progress=progress)

    def remember(self, policy: Policy, rule: Rule) -> None:
        """Give the policy what those like it have learnt under this rule, and share what it learns.

        Kept of the pairs used last, so that requests which each bring their own do no harm.
        """
        if policy.memory is None:
            return
        key = policy.label, rule.label
        with self._memories_lock:
            policy.memory = self._memories.setdefault(key, policy.memory)
            self._memories.move_to_end(key)
            if len(self._memories) > _MOST_MEMORIES:
                self._memories.popitem(last=False)

    def session(self) -> Session:
        """A conversation's memory, to be passed as `session=` to several calls."""
        return Session(self.target, self.drafter)

    def generate(self, prompt: str | Sequence[int], **options: Any) -> GenerationResult:
        """Answer `prompt`; options as in `job`."""
        return self.stream(prompt, **options).finish()

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> GenerationResult:
        """Answer the last of `messages`, `[{"role": ..., "content": ...}]`; options as in `job`."""
        return self.chat_stream(messages, **options).finish()

    def chat_stream(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Stream:
        """Stream the answer to the last of `messages`; options as in `job`."""
        return self.stream(self.tokenizer.apply_chat_template(messages), **options)

    def stream(
        self, prompt: str | Sequence[int], *, session: Session | None = None, **options: Any
    ) -> Stream:
        """Answer `prompt` piece by piece, in the cache of `session`; options as in `job`."""
        return Stream(session or self.session(), self.job(prompt, **options))

    job = make_job

    def make_policy(self, policy: str | Policy, options: Mapping[str, Any] | None = None) -> Policy:
        """The policy that requests asking for this one get; "auto" is the target's own."""
        if policy == "auto":
            if options:
                raise ConfigError(
                    "are given without a policy",
                    field="policy_options",
                    remedy="Name the policy they are for",
                )
            policy = "none" if self.drafter is None else self.target.default_policy
        chosen = make_policy(policy, options)
        if chosen.needs_draft and self.drafter is None:
            raise ConfigError(
                f"{chosen.name!r} drafts, and {self.model_name} has no drafter",
                field="policy",
                remedy="Give draft_model (--draft-model), or use policy none",
            )
        return chosen
