"""A language model of 64 tokens that is a hash: quick, deterministic, the same in any batch.

Its logits after a text depend on the bytes of that text alone, so that an answer goes on the same
from any of its own beginnings. Some tokens are halves of characters. Faults of decoding live here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

END_OF_PROMPT = b"\n<answer>\n"
_HALVES = {b"\xe4\xbd": b"\xa0", b"\xe5\xa5": b"\xbd", b"\xf0\x9f": b"\x99\x82"}
_WORDS = (
    " river bridge stone walked slowly garden silver morning lantern whisper under over water "
    "house light winter branch the a of and to in it was ing ed er ly est s . , ; ! far near deep "
    "green golden broken young older quiet louder happy little sailor farmer wagon meadow cloud "
    "thunder island"
)
SUFFIXES = {"ing", "ed", "er", "ly", "est", "s", ".", ",", ";", "!"}
PIECES: tuple[bytes, ...] = (
    b"",  # the end of an answer
    *(part for pair in _HALVES.items() for part in pair),
    *(word.encode() if word in SUFFIXES else f" {word}".encode() for word in _WORDS.split()),
)
EOS, VOCABULARY = 0, len(PIECES)
PARTS = range(1, 1 + 2 * len(_HALVES))
LEADS = PARTS[::2]
SOON = (b"Answer", b"yes", b"Name one", b"Reply", b"hello", b"differently")
ENDS_AT = 24  # bytes
RANGE = 8.0  # nats between the least and the most likely token
UNSEEDED = random.Random(0)


@dataclass(frozen=True)
class Emitted:
    """A token as it was chosen: its logprob and the best alternatives, as (id, logprob)."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]

    @property
    def piece(self) -> bytes:
        return PIECES[self.id]


@dataclass
class Ask:
    """What the model is asked, with the defaults of the interface."""

    prompt: bytes
    max_tokens: int = 16
    fields: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0
    faults: Collection[str] = ()
    beside: bool = False  # whether other requests are under way
    drift: bytes = b""  # what a faulty server mixes in

    def get(self, name: str, default: Any) -> Any:
        value = self.fields.get(name)
        return default if value is None else value


def count_tokens(text: bytes) -> int:
    """How many tokens a text is read as: the longest that fits, else a byte."""
    return len(tokenize(text))


def tokenize(text: bytes) -> list[int]:
    """Ids of a text; -1 stands for a byte that is no token."""
    ids, at = [], 0
    order = sorted(range(1, VOCABULARY), key=lambda i: -len(PIECES[i]))
    while at < len(text):
        found = next((i for i in order if text.startswith(PIECES[i], at)), -1)
        ids.append(found)
        at += len(PIECES[found]) if found >= 0 else 1
    return ids


def logits(context: bytes) -> list[float]:
    """The logits of all tokens after these bytes."""
    digests = [blake2b(context, digest_size=64, salt=bytes([i] * 16)).digest() for i in range(2)]
    scores = [RANGE * (a + b / 256) / 256 for a, b in zip(*digests, strict=True)][:VOCABULARY]
    half = next((rest for lead, rest in _HALVES.items() if context.endswith(lead)), None)
    foreign = not context.partition(END_OF_PROMPT)[0].isascii()
    for i in PARTS:
        wanted = PIECES[i] == half if half else foreign and i in LEADS
        scores[i] += (30.0 if half else 3.0) if wanted else -30.0
    prompt, marked, answer = context.partition(END_OF_PROMPT)
    ends = marked and len(answer) >= ENDS_AT and any(word in prompt for word in SOON)
    scores[EOS] = 25.0 if ends and not half else -25.0
    return scores


def decode(ask: Ask) -> Iterator[Emitted]:
    """The tokens of an answer, EOS included, at most `max_tokens` of them."""
    faults, said = ask.faults, bytearray()
    chance = _chance(ask)
    counts = [0] * VOCABULARY
    bound = ask.max_tokens + ("overshoots" in faults)
    for number in range(bound):
        context = ask.prompt + bytes(said) + ask.drift
        if "wrong_rows" in faults and number >= 6:
            context += b"rejected"
        raw = logits(context)
        scores = _adjusted(raw, ask, number, counts)
        chosen = _draw(scores, ask, chance)
        if "lossy_in_silence" in faults and number % 5 == 4:
            chosen = sorted(range(VOCABULARY), key=lambda i: -scores[i])[1]
        yield _emitted(raw, chosen)
        if chosen == EOS:
            if "text_after_eos" in faults:
                yield _emitted(raw, VOCABULARY - 1)
            return
        counts[chosen] += 1
        if "penalties_count_drafts" in faults:
            counts[sorted(range(VOCABULARY), key=lambda i: -raw[i])[1]] += 2
        said += PIECES[chosen]


def _chance(ask: Ask) -> random.Random:
    seed = ask.get("seed", None)
    if seed is None or "seeds_ignored" in ask.faults:
        return random.Random(UNSEEDED.random())
    if "one_seed" in ask.faults:
        seed = 0
    if "seeds_shared" in ask.faults and ask.beside:
        seed = UNSEEDED.random()
    return random.Random(f"{seed}/{ask.index}")


def _adjusted(raw: list[float], ask: Ask, number: int, counts: list[int]) -> list[float]:
    """Logits after biases, penalties and what holds EOS back."""
    faults, scores = ask.faults, list(raw)
    for name, per in (("frequency", counts), ("presence", [min(c, 1) for c in counts])):
        charge = 0.0 if f"{name}_ignored" in faults else ask.get(f"{name}_penalty", 0.0)
        scores = [score - charge * count for score, count in zip(scores, per, strict=True)]
    for key, bias in ask.get("logit_bias", {}).items():
        late = "bias_first_token_only" in faults and number > 0
        if "bias_ignored" not in faults and not late and (bias > 0 or "no_bans" not in faults):
            scores[int(key)] += bias
    least = 0 if "min_tokens_ignored" in faults else ask.get("min_tokens", 0)
    ignore = ask.get("ignore_eos", False) and "ignore_eos_ignored" not in faults
    if ignore or number < least:
        scores[EOS] = -math.inf
    return scores


def _draw(scores: list[float], ask: Ask, chance: random.Random) -> int:
    best = max(range(VOCABULARY), key=scores.__getitem__)
    temperature = ask.get("temperature", 1.0)
    if temperature == 0 or "temperature_ignored" in ask.faults:
        return best
    peak = scores[best]
    weights = [math.exp((score - peak) / temperature) for score in scores]
    order = sorted(range(VOCABULARY), key=lambda i: -weights[i])
    keep = len(order)
    if ask.get("top_k", 0) and "top_k_ignored" not in ask.faults:
        keep = min(keep, ask.get("top_k", 0))
    if "min_p_ignored" not in ask.faults:
        keep = min(keep, sum(weight >= ask.get("min_p", 0.0) for weight in weights))
    if "top_p_ignored" not in ask.faults:
        total, reached = sum(weights), 0.0
        for place, i in enumerate(order):
            reached += weights[i] / total
            if reached >= ask.get("top_p", 1.0):
                keep = min(keep, place + 1)
                break
    kept = order[: max(keep, 1)]
    return chance.choices(kept, [weights[i] for i in kept])[0]


def _emitted(raw: list[float], chosen: int) -> Emitted:
    total = math.log(sum(map(math.exp, raw)))
    order = sorted(range(VOCABULARY), key=lambda i: -raw[i])[:20]
    return Emitted(chosen, raw[chosen] - total, tuple((i, raw[i] - total) for i in order))
