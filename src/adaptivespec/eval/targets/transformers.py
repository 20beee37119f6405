"""Hugging Face transformers as a target: plain greedy or sampled decoding, and prompt lookup.

Prompts are the ids that our own tokenizer gives, so that all engines read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from adaptivespec.calibrate.identity import weights_at
from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Answer, Ask, Target
from adaptivespec.eval.tasks.base import Item

__all__ = ["TransformersTarget"]

PLAIN = "transformers"
LOOKUP = "transformers lookup:10"
LOOKUP_TOKENS = {PLAIN: 0, LOOKUP: 10}
"""Tokens that each arm copies from the prompt as a draft; 10 is what its documentation uses."""


class TransformersTarget(Target):
    """A model in transformers, on the CPU.

    Args:
        model: as for ``Engine.from_pretrained``; None for the embedded one.
        threads: of torch; None leaves its own choice.
        cache_dir: where fetched models are kept.
        dtype: of weights and activations.

    Raises:
        TargetError: transformers is not installed, or cannot load this model.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        threads: int | None = None,
        cache_dir: str | Path | None = None,
        dtype: str = "bfloat16",
    ) -> None:
        import torch

        from adaptivespec.engine.tokens import Tokenizer
        from adaptivespec.engine.weights import resolve_model

        try:
            import transformers
        except ImportError as error:
            raise TargetError(
                "is not installed", field="transformers", remedy="pip install transformers"
            ) from error
        if threads is not None:
            torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        try:
            found = resolve_model(model, cache_dir=cache_dir)
            self._tokenizer = Tokenizer.from_dir(found.path)
            path, file = found.path, {}
            if path.suffix == ".gguf":
                path, file = path.parent, {"gguf_file": path.name}
            self._model = transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype=getattr(torch, dtype), **file
            ).eval()
        except AdaptiveSpecError:
            raise
        except Exception as error:  # whatever another library finds wrong with a model
            raise TargetError(f"cannot load the model: {error}", field="transformers") from error
        self.identity = {"model": weights_at(found.path, found.name).model_dump()}
        self.about = (
            f"transformers {version('transformers')}, {dtype}, torch {torch.__version__}, "
            f"{torch.get_num_threads()} threads"
        )

    @property
    def arms(self) -> Sequence[Arm]:
        return [Arm(name) for name in LOOKUP_TOKENS]

    def answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        begin = perf_counter()
        try:
            return self._turns(LOOKUP_TOKENS[arm.name], item, ask, begin)
        except Exception as error:  # of another library: this answer is lost, not the run
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return Answer(seconds=perf_counter() - begin, error=text[:300])

    def close(self) -> None:
        del self._model

    def _turns(self, lookup: int, item: Item, ask: Ask, begin: float) -> Answer:
        messages: list[dict[str, str]] = []
        answer = Answer(finish_reason="stop")
        kept: list[int] = []
        marks: list[tuple[float, list[int]]] = []
        for user in item.turns:
            messages.append({"role": "user", "content": user})
            prompt = self._tokenizer.apply_chat_template(messages)
            ids, steps = self._generate(prompt, lookup, ask)
            answer.seconds = perf_counter() - begin
            turn = self._cut(ids[: ask.max_tokens], ask)
            messages.append({"role": "assistant", "content": turn.text})
            marks += steps
            kept += turn.kept
            answer.text = turn.text
            answer.prompt_tokens += len(prompt)
            answer.completion_tokens += turn.count
            if not turn.ended:
                answer.finish_reason = "length"
            if ask.detail:
                answer.nll = (answer.nll or 0.0) + self._nll(prompt, turn.kept)
        answer.token_ids = kept
        shown = [(at - begin, len(self._tokenizer.decode(tokens))) for at, tokens in marks]
        answer.chunks = [[at, characters] for at, characters in shown if characters]
        answer.first_token_s = answer.chunks[0][0] if answer.chunks else None
        if ask.detail:
            answer.pieces = [self._tokenizer.token_text(token) for token in kept]
            answer.nll_tokens = len(kept)
        if lookup:  # it reads the prompt and the first drafts in one pass, which counts as a step
            answer.stats = {
                "num_spec_steps": len(marks),
                "num_committed_tokens": answer.completion_tokens,
                "accept_length": answer.completion_tokens / len(marks) if marks else None,
            }
        return answer

    def _generate(
        self, prompt: Sequence[int], lookup: int, ask: Ask
    ) -> tuple[list[int], list[tuple[float, list[int]]]]:
        """New ids, and when each step's came."""
        import torch
        from transformers import StoppingCriteriaList

        streamer = _Streamer()
        ids = torch.tensor([list(prompt)])
        eos = list(self._tokenizer.eos_token_ids)
        options: dict[str, Any] = {"do_sample": False}
        if ask.temperature > 0:
            torch.manual_seed(ask.seed)
            options = {"do_sample": True, "temperature": ask.temperature, "top_k": 0, "top_p": 1.0}
        if lookup:
            options["prompt_lookup_num_tokens"] = lookup
        if ask.stop:
            ends = _ends_with_stop(self._tokenizer.decode, len(prompt), ask.stop)
            options["stopping_criteria"] = StoppingCriteriaList([ends])
        with torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=ask.max_tokens,
                eos_token_id=None if ask.ignore_eos or not eos else eos,
                pad_token_id=eos[0] if eos else 0,
                streamer=streamer,
                **options,
            )
        return out[0, len(prompt) :].tolist(), streamer.steps

    def _cut(self, ids: list[int], ask: Ask) -> _Turn:
        """The ids up to what ends the answer; a step of several may have gone past it."""
        decode = self._tokenizer.decode
        for count in range(1, len(ids) + 1):
            if not ask.ignore_eos and ids[count - 1] in self._tokenizer.eos_token_ids:
                return _Turn(decode(ids[: count - 1]), ids[: count - 1], count, ended=True)
            if ask.stop:
                text = decode(ids[:count])
                found = [at for stop in ask.stop if (at := text.find(stop)) >= 0]
                if found:
                    return _Turn(text[: min(found)], ids[:count], count, ended=True)
        return _Turn(decode(ids), ids, len(ids), ended=False)

    def _nll(self, prompt: Sequence[int], kept: Sequence[int]) -> float:
        """-ln p of `kept` after `prompt`, in nats, by one pass over both."""
        import torch

        if not kept:
            return 0.0
        ids = torch.tensor([[*prompt, *kept]])
        with torch.inference_mode():
            logits = self._model(ids).logits[0, len(prompt) - 1 : -1].float()
        rows = logits.log_softmax(-1).gather(-1, torch.tensor(kept)[:, None])
        return -float(rows.sum())


@dataclass(frozen=True)
class _Turn:
    """`count` includes an id that ended the answer, `kept` does not."""

    text: str
    kept: list[int]
    count: int
    ended: bool


class _Streamer:
    """A streamer of transformers that notes what comes when; the prompt comes first."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, list[int]]] = []
        self._seen_prompt = False

    def put(self, value: Any) -> None:
        if self._seen_prompt:
            self.steps.append((perf_counter(), value.flatten().tolist()))
        self._seen_prompt = True

    def end(self) -> None:
        pass


def _ends_with_stop(
    decode: Callable[[Sequence[int]], str], prompt: int, stop: Sequence[str]
) -> Any:
    """A stopping criterion: the text after the prompt's tokens holds one of `stop`."""
    import torch
    from transformers import StoppingCriteria

    class Ends(StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            text = decode(input_ids[0, prompt:].tolist())
            return torch.tensor([any(end in text for end in stop)])

    return Ends()
