"""Labels for a judge: flip one token of the target's answer to a draft and see whether it matters.

The idea is that of AutoJudge (arXiv 2504.20039): a draft that the target would not have chosen is
harmless when the target, going on from it, still reaches the same final answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.core.law import Law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Verdict
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.session import Session
from adaptivespec.train.judge.prompts import NUMBER, Extract, extractor
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.strict import StrictRule

FLIPS_FILE = "flips.jsonl"
#: Why a prompt gave no flips.
TOO_LONG, UNFINISHED, NO_ANSWER, NO_DRAFTS = "too long", "unfinished", "no answer", "no drafts"


@dataclass(frozen=True)
class FlipOptions:
    """What is flipped, and what counts as the answer.

    Attributes:
        flips: labels to stop at; the prompt that reaches them is finished.
        flips_per_prompt: flips of one answer, at positions drawn from it.
        max_tokens: longest answer; longer ones are skipped. After a flip a quarter more is allowed,
            and an answer that is then unfinished counts as changed.
        min_margin: drafts whose p / max p is no larger are not flipped: nobody would promote them.
        policy: which drafts there are. Its plans must not depend on earlier requests.
        answer_regex: the last match is the answer (its first group where there is one).
        seed: of the draw of positions.
    """

    flips: int = 600
    flips_per_prompt: int = 8
    max_tokens: int = 160
    min_margin: float = 0.02
    policy: str = "static:5,4,16"
    answer_regex: str = NUMBER
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("flips", "flips_per_prompt", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"must be at least 1, got {getattr(self, name)}", field=name)
        if not 0 <= self.min_margin < 1:
            raise ConfigError(f"must lie in [0, 1), got {self.min_margin}", field="min_margin")
        extractor(self.answer_regex)


@dataclass(frozen=True, eq=False)
class Flip:
    """One label.

    Attributes:
        prompt: number of the prompt in its file.
        position: output position of the flipped token.
        token, own: the draft put there, and the target's own token.
        margin: p(token) / max p under the target.
        harmless: the final answer stayed the same.
        hidden: f32[H], what the target's last layer gives at the flipped token.
        draft_hidden: f32[D], the drafter's feature that proposed it.
    """

    prompt: int
    position: int
    token: int
    own: int
    margin: float
    harmless: bool
    hidden: Tensor
    draft_hidden: Tensor


class FlipMiner:
    """Mines the flips of `prompts` into `output/flips.jsonl`, a line per prompt.

    A stopped run goes on behind the last whole line and gives what an unstopped one gives: each
    prompt has a session of its own, and its flips run from the last position to the first, so that
    every one goes on from the rows that the unflipped answer left.

    Args:
        engine: a target with a drafter.
        prompts: user messages, put into the target's chat template where it has one.
        extract: the final answer of a text, or None; by default what `options.answer_regex` says.

    Raises:
        ConfigError: there is no drafter.
        CheckpointError: `output` holds the flips of another run.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[str],
        output: Path,
        options: FlipOptions | None = None,
        extract: Extract | None = None,
    ) -> None:
        if engine.drafter is None:
            raise ConfigError(
                f"{engine.model_name} has no drafter, and only drafts are judged",
                field="draft_model",
                remedy="Give one with --draft-model",
            )
        self.engine, self.prompts = engine, prompts
        self.options = options or FlipOptions()
        self.extract = extract or extractor(self.options.answer_regex)
        self.path = output / FLIPS_FILE
        self.seen = 0
        self.skipped: dict[str, int] = {}
        self.flips: list[Flip] = []

    @property
    def done(self) -> bool:
        """Whether there are labels enough, or no prompts left."""
        return len(self.flips) >= self.options.flips or self.seen >= len(self.prompts)

    def resume(self) -> None:
        """Read what an earlier run left; start the file where there is none."""
        header = self._header()
        # Behind the last line break stands at most a line that was cut short.
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(header) + "\n", encoding="utf-8")
            return
        try:
            first, *rows = (json.loads(line) for line in lines)
            differ = [name for name, value in header.items() if first.get(name) != value]
            for row in [] if differ else rows:
                self._add(row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._refused(f"cannot be resumed: {error!r}") from error
        if differ:
            raise self._refused(f"was made with other values of {', '.join(differ)}")
        self.path.write_bytes(b"\n".join([*lines, b""]))

    def mine_next(self) -> None:
        """Mine one prompt more and append its line."""
        row = self._mine(self.seen)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._add(row)

    def _mine(self, index: int) -> dict[str, Any]:
        """The line of one prompt: its answer and flips, or why there are none."""
        options, session = self.options, self.engine.session()
        prompt = self._ids(self.prompts[index])
        row: dict[str, Any] = {"prompt": index, "flips": []}
        if len(prompt) >= self.engine.target.limits.max_model_len:
            return row | {"skipped": TOO_LONG}
        recorder = _Recorder(options.min_margin)
        strict = self.engine.generate(
            prompt,
            rule=recorder,
            policy=options.policy,
            max_tokens=options.max_tokens,
            session=session,
        )
        if strict.finish_reason != "stop":
            return row | {"skipped": UNFINISHED}
        answer = self.extract(strict.text)
        if answer is None:
            return row | {"skipped": NO_ANSWER}
        chosen = self._choose(recorder.drafts, index)
        if not chosen:
            return row | {"skipped": NO_DRAFTS}
        row["answer"] = answer
        for draft in chosen:
            reached = self._outcome(session, [*prompt, *strict.token_ids], len(prompt), draft)
            row["flips"].append(draft | {"answer": reached, "harmless": reached == answer})
        return row

    def _choose(self, drafts: Sequence[dict[str, Any]], index: int) -> list[dict[str, Any]]:
        """At most one draft for a position and `flips_per_prompt` in all, last position first."""
        rng = random.Random(f"{self.options.seed}-{index}")  # noqa: S311  not for secrets
        order = list(drafts)
        rng.shuffle(order)
        by_position: dict[int, dict[str, Any]] = {}
        for draft in order:
            by_position.setdefault(draft["position"], draft)
        kept = list(by_position.values())[: self.options.flips_per_prompt]
        return sorted(kept, key=lambda draft: -int(draft["position"]))

    def _outcome(
        self, session: Session, ids: list[int], prompt_len: int, draft: dict[str, Any]
    ) -> str | None:
        """Where the target gets to from the flipped token: its final answer, or None."""
        options, position = self.options, int(draft["position"])
        result = self.engine.generate(
            [*ids[: prompt_len + position], int(draft["token"])],
            policy=options.policy,
            max_tokens=options.max_tokens + options.max_tokens // 4 - position - 1,
            session=session,
        )
        text = self.engine.tokenizer.decode(
            [*ids[prompt_len : prompt_len + position], int(draft["token"]), *result.token_ids]
        )
        return self.extract(text) if result.finish_reason == "stop" else None

    def _ids(self, text: str) -> list[int]:
        tokenizer = self.engine.tokenizer
        if not tokenizer.has_chat_template:
            return tokenizer.encode(text)
        return tokenizer.apply_chat_template([{"role": "user", "content": text}])

    def _add(self, row: dict[str, Any]) -> None:
        self.seen += 1
        if "skipped" in row:
            self.skipped[row["skipped"]] = self.skipped.get(row["skipped"], 0) + 1
        for flip in row["flips"]:
            self.flips.append(
                Flip(
                    prompt=row["prompt"],
                    position=flip["position"],
                    token=flip["token"],
                    own=flip["own"],
                    margin=flip["margin"],
                    harmless=flip["harmless"],
                    hidden=_floats(flip["hidden"]),
                    draft_hidden=_floats(flip["draft_hidden"]),
                )
            )

    def _header(self) -> dict[str, Any]:
        """What must be the same for a run to go on; more labels may be asked for."""
        texts = hashlib.sha256("\n".join(self.prompts).encode()).hexdigest()
        options = asdict(self.options)
        del options["flips"]
        models = {"target": self.engine.model_name, "drafter": self.engine.head_name}
        return {"prompts_sha256": texts, **models, "dtype": self.engine.dtype, **options}

    def _refused(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} {problem}",
            field="output",
            remedy="Give the same data and options to go on, another --output, or remove the file",
        )


@dataclass(frozen=True, eq=False)
class _Seen(Choice):
    """A strict choice with the target's hidden states, for the recorder's `observe`."""

    hidden: Tensor


class _Recorder(StrictRule):
    """Strict verification that notes the drafts beside its path, with both models' features."""

    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "hidden"
    draft_hidden: ClassVar[bool] = True

    def __init__(self, min_margin: float) -> None:
        super().__init__()
        self.limit = -math.log(min_margin) if min_margin > 0 else math.inf
        self.drafts: list[dict[str, Any]] = []

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """As strict."""
        base = super().choose(law, tree, state)
        if law.hidden is None:
            raise ConfigError("the target gives no hidden states", field="model")
        return _Seen(base.target, base.tokens, base.child_drop, base.target_drop, law.hidden)

    def observe(
        self, tree: DraftTree, choice: Choice, verdict: Verdict, state: VerifyState
    ) -> None:
        """Note the children of the path that the target did not choose."""
        if tree.num_nodes == 1 or not isinstance(choice, _Seen):
            return
        if tree.hidden is None:
            raise ConfigError("the drafter gives no features", field="draft_model")
        start = state.ledger.outputs - len(verdict.tokens)
        path = zip(verdict.path[: len(verdict.tokens)], verdict.strict, strict=True)
        for offset, (node, own) in enumerate(path):
            for i in (tree.parent == node).nonzero()[:, 0].tolist():
                token, drop = int(tree.token[i]), float(choice.child_drop[i])
                if token == own or drop >= self.limit or state.protected[[token, own]].any():
                    continue
                self.drafts.append(
                    {
                        "position": start + offset,
                        "token": token,
                        "own": own,
                        "margin": math.exp(-drop),
                        "hidden": _text(choice.hidden[i]),
                        "draft_hidden": _text(tree.hidden[i]),
                    }
                )


def _text(row: Tensor) -> str:
    """A row as base64 of little-endian float32."""
    return base64.b64encode(row.float().numpy().astype("<f4").tobytes()).decode("ascii")


def _floats(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy())
