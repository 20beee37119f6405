"""Our own engine as a target of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from adaptivespec import __version__
from adaptivespec.engine import Engine
from adaptivespec.engine.identity import backend_of, identity_of
from adaptivespec.engine.result import GenerationResult
from adaptivespec.engine.session import Session
from adaptivespec.eval.arms import Arm, plain
from adaptivespec.eval.targets.base import Answer, Ask, Target
from adaptivespec.eval.tasks.base import Item

__all__ = ["EngineTarget"]

BUCKET = 32
"""Output positions that share an entry of ``Answer.shapes``."""


class EngineTarget(Target):
    """The embedded engine; every rule and policy is an arm.

    Args:
        options: of ``Engine.from_pretrained``.
    """

    def __init__(self, **options: Any) -> None:
        import torch

        if options.get("threads") is None:
            options["threads"] = torch.get_num_threads()
        self._engine = Engine.from_pretrained(**options)
        self._prepared: set[str] = set()
        self.identity: Mapping[str, Any] = identity_of(self._engine)
        self.about = (
            f"adaptivespec {__version__}, {self._engine.model_name}, head "
            f"{self._engine.head_name or 'none'}, {backend_of(self._engine)}, "
            f"{self._engine.dtype}, {options['threads']} threads, torch {torch.__version__}"
        )

    @property
    def arms(self) -> Sequence[Arm]:
        """Plain decoding; any other may be asked for as well."""
        return [plain()]

    def answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        """Answer turn by turn in a session of this request alone."""
        if arm.policy not in self._prepared:
            self._engine.prepare(arm.policy)
            self._prepared.add(arm.policy)
        answer = Answer(text="", stats=None)
        session, messages = self._engine.session(), list[dict[str, str]]()
        shapes: Counter[tuple[int, tuple[int, int, int]]] = Counter()
        results = []
        begin = perf_counter()
        for turn in item.turns:
            messages.append({"role": "user", "content": turn})
            prompt = self._prompt(messages)
            if ask.split_prompt:
                self._read_half(prompt, session)
            stream = self._engine.stream(
                prompt,
                rule=arm.rule,
                policy=arm.policy,
                session=session,
                logprobs=ask.detail,
                max_tokens=ask.max_tokens,
                stop=ask.stop,
                temperature=ask.temperature,
                seed=ask.seed,
                ignore_eos=ask.ignore_eos,
            )
            for chunk in stream:
                if answer.first_token_s is None and chunk.text:
                    answer.first_token_s = perf_counter() - begin
                if chunk.step is not None:
                    shapes[chunk.step.position // BUCKET, chunk.step.plan] += 1
            messages.append({"role": "assistant", "content": stream.result.text})
            results.append(stream.result)
        answer.seconds = perf_counter() - begin
        answer.shapes = [[place, list(plan), n] for (place, plan), n in sorted(shapes.items())]
        _fill(answer, results, ask.detail)
        return answer

    def close(self) -> None:
        """Let go of the weights."""
        self._engine.close()

    def _prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        tokenizer = self._engine.tokenizer
        if tokenizer.has_chat_template:
            return list(tokenizer.apply_chat_template(messages))
        return tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n\n")

    def _read_half(self, prompt: Sequence[int], session: Session) -> None:
        """Leave the first half of the prompt in the session: passes of other sizes follow."""
        half = len(prompt) // 2
        if half:
            self._engine.generate(prompt[:half], policy="none", max_tokens=1, session=session)


def _fill(answer: Answer, results: Sequence[GenerationResult], detail: bool) -> None:
    """What the results of all turns say together."""
    first = results[0]
    for other in results[1:]:
        first.stats.merge(other.stats)
    tokens = [token for result in results for token in result.tokens]
    answer.text = results[-1].text
    answer.finish_reason = (
        "length" if any(result.finish_reason == "length" for result in results) else "stop"
    )
    answer.prompt_tokens = sum(result.prompt_tokens for result in results)
    answer.completion_tokens = sum(result.completion_tokens for result in results)
    answer.lossless, answer.rule, answer.policy = first.lossless, first.rule, first.policy
    answer.stats = first.stats.details()
    answer.timings = {
        name: sum(result.timings[name] for result in results) for name in first.timings
    }
    answer.token_ids = [token.token_id for token in tokens]
    answer.kinds = "".join(token.kind.value[0] for token in tokens)
    answer.margins = [token.margin for token in tokens if token.kind.value == "promoted"]
    if detail:
        answer.pieces = [token.text for token in tokens]
        known = [token.logprob for token in tokens if token.logprob is not None]
        answer.nll, answer.nll_tokens = -sum(known), len(known)
