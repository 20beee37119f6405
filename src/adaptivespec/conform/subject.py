"""The server under test, and what has been found out about it.

Cases are built from observations: the greedy answer of this model, where its tokens end, a prompt
whose answer ends by itself. Each is made once, for all cases that want it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from adaptivespec.conform import prompts
from adaptivespec.conform.answer import CHAT, COMPLETIONS, USUAL, Answer
from adaptivespec.conform.case import Failed, NotApplicable, Refused, shown
from adaptivespec.conform.link import Link, LinkError
from adaptivespec.conform.together import together

__all__ = ["Subject"]

T = TypeVar("T")
KEY_REMEDY = "Give its key with --api-key"
LONG_TOKENS = 40
ENDING_TOKENS = 96
MULTIBYTE_TOKENS = 32
TOPS = (20, 5)
WIDTH = 4
UNSUPPORTED = (404, 405, 501)
#: How refusals speak of fields, where not by their names.
CALLED = {"logprobs": "logprob", "top_logprobs": "logprob", "tool_choice": "tool"}


class Subject:
    """A server and one of its models.

    Args:
        link: how it is reached.
        model: as the server calls it; None takes the one that it lists first.
        tie: nats within which two tokens count as tied: where a greedy answer may differ from
            itself by rounding.

    Raises:
        LinkError: it cannot be reached, refuses the key, or has no such model.
    """

    def __init__(self, link: Link, model: str | None = None, tie: float = 0.1) -> None:
        self.link, self.tie = link, tie
        self._found: dict[object, object] = {}
        self.entry = self._choose(model)
        self.model = str(self.entry["id"])

    def ask(
        self, prompt: Any = None, *, path: str = CHAT, stream: bool = False, **fields: Any
    ) -> Answer:
        """Ask, greedily unless a temperature is given.

        Args:
            prompt: the user's message, or messages; for COMPLETIONS the text to go on with.
            fields: further fields of the body.

        Raises:
            Refused: the server refuses one of `fields`, and names it.
            Failed: it refuses without a name, or does not answer in OpenAI's form.
            NotApplicable: it has no such endpoint.
            LinkError: it wants another key.
        """
        answer = self.send(self.body(prompt, path=path, stream=stream, **fields), path)
        if answer.status == 200:
            return answer.read()
        raise self.refusal(answer)

    def body(self, prompt: Any, *, path: str = CHAT, **fields: Any) -> dict[str, Any]:
        """The body of a request; fields that are None are left out."""
        if path == COMPLETIONS:
            said = {"prompt": prompt}
        else:
            chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            said = {"messages": chat}
        body = {"model": self.model, **said, "max_tokens": 16, "temperature": 0, **fields}
        if not body.get("stream"):
            body.pop("stream", None)
        return {name: value for name, value in body.items() if value is not None}

    def send(self, body: dict[str, Any], path: str = CHAT) -> Answer:
        """Send a body as it is; whatever comes back is returned unread."""
        return self.link.stream(path, body) if body.get("stream") else self.link.post(path, body)

    def refusal(self, answer: Answer) -> Exception:
        """What a status other than 200 means for a well-formed request."""
        body = answer.request.body
        if answer.status in (401, 403):
            return LinkError(answer.words, field=self.link.url, remedy=KEY_REMEDY)
        if answer.status in UNSUPPORTED and "prompt" in body:
            return NotApplicable(f"no /{COMPLETIONS}: {answer.words}")
        if 400 <= answer.status < 500 or answer.status == 501:
            for name in body:
                if name not in USUAL and answer.names(CALLED.get(name, name)):
                    return Refused(name, answer.words)
        return Failed("an answer, or a 400 that names the parameter", answer.words, answer.request)

    def together(self, asks: Sequence[Callable[[], T]]) -> list[T]:
        """Call all, at most WIDTH at once; the first error, in their order, is raised."""
        return together(asks, WIDTH)

    def once(self, name: object, make: Callable[[], T]) -> T:
        """What `make` returns, or raises, the first time."""
        if name not in self._found:
            try:
                self._found[name] = make()
            except (Failed, Refused, NotApplicable) as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    def without(self, need: str) -> str | None:
        """Why the server lacks what a case needs; None where it has it."""
        if need == "logprobs":
            return self.once("logprobs", self._try_logprobs)[1]
        try:
            self.once("completions", lambda: self.ask(prompts.RAW[0], path=COMPLETIONS))
        except NotApplicable as reason:
            return str(reason)
        return None

    def greedy(self, prompt: Any, max_tokens: int, *, path: str = CHAT) -> Answer:
        """The greedy answer, with logprobs where the server gives them; asked once."""
        key = (str(prompt), max_tokens, path)
        return self.once(
            key,
            lambda: self.ask(prompt, path=path, max_tokens=max_tokens, **self.logprob_fields(path)),
        )

    def logprob_fields(self, path: str = CHAT) -> dict[str, Any]:
        """Fields that ask for logprobs; none where the server has none."""
        tops, reason = self.once("logprobs", self._try_logprobs)
        if reason is not None:
            return {}
        if path == COMPLETIONS:
            return {"logprobs": 5}
        return {"logprobs": True, "top_logprobs": tops}

    def long(self) -> Answer:
        """A greedy answer that was cut at LONG_TOKENS, in more than one token."""
        return self.once("long", lambda: self._long(CHAT, prompts.LONG))

    def long_raw(self) -> Answer:
        """The same of completions."""
        return self.once("long raw", lambda: self._long(COMPLETIONS, prompts.RAW))

    def ending(self) -> Answer:
        """A greedy answer that ended by itself, well before its bound."""
        return self.once("ending", self._ending)

    def both(self) -> list[Answer]:
        """The long answer and the one that ended by itself, as far as there are such."""
        found, reasons = [], []
        for make in (self.long, self.ending):
            try:
                found.append(make())
            except NotApplicable as reason:
                reasons.append(str(reason))
        if not found:
            raise NotApplicable("; ".join(reasons))
        return found

    def multibyte(self) -> Answer:
        """A greedy answer with characters of several bytes, over two tokens if there is one."""
        return self.once("multibyte", self._multibyte)

    def prompt_of(self, answer: Answer) -> Any:
        """What an answer was asked with."""
        body = answer.request.body
        return body["prompt"] if "prompt" in body else body["messages"]

    def pieces(self, reference: Answer) -> list[bytes]:
        """The tokens of a greedy answer; the pieces of its stream where no logprobs are given."""
        if reference.tokens:
            return [token.encoded for token in reference.tokens]
        body = reference.request.body
        streamed = self.once(
            ("pieces", str(body)),
            lambda: self.ask(self.prompt_of(reference), stream=True, max_tokens=body["max_tokens"]),
        )
        return [delta.encode() for delta in streamed.first.deltas if delta]

    def same(self, reference: Answer, answer: Answer, expected: str, required: str) -> str | None:
        """Require a text, but for a tie.

        Args:
            reference: the greedy answer, with logprobs if there are any, that `expected` is the
                beginning of.
            answer: what has to have the text `expected`.
            required: the requirement in words.

        Returns:
            None, or a remark where the difference begins at a tie of the reference, or where
            the bounds differ and the server says that it is lossy.

        Raises:
            Failed: they differ elsewhere, or one is cut short.
        """
        wanted, got = expected.encode(), answer.text.encode()
        at = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), None)
        if at is None and len(wanted) == len(got):
            return None
        token = reference.token_at(at) if at is not None else None
        if token is not None and token.gap is not None and token.gap <= self.tie:
            return f"differs at a tie of {token.gap:.1e} nats"
        if answer.field("lossless") is False and _bound(reference) != _bound(answer):
            return "lossy, by the server's own word: another bound may bring other drafts"
        here = min(len(wanted), len(got)) if at is None else at
        raise Failed(
            f"{required}: {_around(wanted, here)!r} at byte {here}",
            f"{_around(got, here)!r}{'' if reference.tokens else ' (no logprobs to show a tie)'}",
            answer.request,
        )

    def context(self) -> int | None:
        """The context length in tokens, where the server tells it."""
        return self.once("context", self._context)

    def require_text(self, answer: Answer) -> None:
        """Raise NotApplicable where the model itself writes bytes that are no characters."""
        if answer.tokens:
            written = b"".join(token.encoded for token in answer.tokens)
            text = written.decode(errors="replace").rstrip("\N{REPLACEMENT CHARACTER}")
            if "\N{REPLACEMENT CHARACTER}" in text:
                raise NotApplicable("the model's answers are not UTF-8, by their tokens' own bytes")

    def excuse_lossy(self, answer: Answer) -> None:
        """Raise NotApplicable where the server says that its answers are not its model's own."""
        if answer.field("lossless") is False:
            raise NotApplicable("lossy, by the server's own word")

    def _choose(self, model: str | None) -> dict[str, Any]:
        url = self.link.url
        try:
            answer = self.link.get("models")
        except Failed as error:
            raise LinkError(
                error.came, field=url, remedy="Is the server running, and is this its address?"
            ) from None
        if answer.status in (401, 403):
            raise LinkError(answer.words, field=url, remedy=KEY_REMEDY)
        listed = answer.body.get("data") if isinstance(answer.body, dict) else None
        if answer.status != 200 or not isinstance(listed, list):
            raise LinkError(
                f"{answer.words}, no list of models",
                field=url,
                remedy="The address has to end as OpenAI's does, mostly in /v1",
            )
        entries = [entry for entry in listed if isinstance(entry, dict) and "id" in entry]
        for entry in entries:
            if model in (None, entry["id"]):
                return entry
        names = ", ".join(str(entry["id"]) for entry in entries) or "none"
        raise LinkError(f"has no model {model!r}", field=url, remedy=f"It lists: {names}")

    def _context(self) -> int | None:
        entry = self.entry
        meta = entry.get("meta") or {}
        props = self.link.get("props", root=True).body  # llama.cpp's
        settings = props.get("default_generation_settings") if isinstance(props, dict) else None
        places = (
            entry.get("max_model_len"),
            entry.get("context_length"),
            meta.get("n_ctx"),
            (settings or {}).get("n_ctx"),
        )
        return next((value for value in places if isinstance(value, int) and value > 0), None)

    def _try_logprobs(self) -> tuple[int, str | None]:
        """How many alternatives are given, or why none are."""
        reason = ""
        for tops in TOPS:
            try:
                answer = self.ask(prompts.SHORT, max_tokens=2, logprobs=True, top_logprobs=tops)
            except (Refused, Failed) as error:
                reason = reason or str(error)
                continue
            if answer.tokens and all(token.top for token in answer.tokens):
                return tops, None
            reason = reason or f"asked for logprobs, came {shown(answer.tokens)}"
        return 0, f"the server gives no logprobs ({reason})"

    def _long(self, path: str, tried: Sequence[str]) -> Answer:
        for prompt in tried:
            answer = self.greedy(prompt, LONG_TOKENS, path=path)
            count = answer.count("completion_tokens")
            if count >= LONG_TOKENS and answer.finish != "length":
                raise Failed("finish_reason 'length' at the bound", f"{count} tokens and "
                             f"{answer.finish!r}", answer.request)  # fmt: skip
            if answer.finish == "length" and len(answer.text) >= LONG_TOKENS // 2:
                return answer
        raise NotApplicable(f"no answer of {LONG_TOKENS} tokens to any of {len(tried)} prompts")

    def _ending(self) -> Answer:
        for prompt in prompts.ENDING:
            answer = self.greedy(prompt, ENDING_TOKENS)
            count = answer.count("completion_tokens")
            if count < ENDING_TOKENS and answer.finish != "stop":
                raise Failed("finish_reason 'stop' before the bound", f"{count} tokens and "
                             f"{answer.finish!r}", answer.request)  # fmt: skip
            if answer.finish == "stop" and answer.text and 3 <= count < ENDING_TOKENS:
                return answer
        raise NotApplicable(f"no answer ended within {ENDING_TOKENS} tokens")

    def _multibyte(self) -> Answer:
        found: list[Answer] = []
        for prompt in prompts.MULTIBYTE:
            answer = self.greedy(prompt, MULTIBYTE_TOKENS)
            if any(_is_part(token.encoded) for token in answer.tokens or ()):
                return answer
            if not answer.text.isascii():
                found.append(answer)
        if not found:
            raise NotApplicable("no answer has characters of several bytes")
        return found[0]


def _is_part(data: bytes) -> bool:
    """Whether these bytes are no whole characters."""
    try:
        return "\N{REPLACEMENT CHARACTER}" in data.decode()
    except UnicodeDecodeError:
        return True


def _bound(answer: Answer) -> object:
    return answer.request.body.get("max_tokens")


def _around(text: bytes, at: int) -> str:
    return text[max(at - 12, 0) : at + 20].decode("utf-8", "replace")
