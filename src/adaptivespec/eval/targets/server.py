"""Any server with OpenAI's interface as a target: each arm is a set of extra request fields.

Answers are streamed and timed here, at the client: what a user would wait for, network and queue
included. Nothing is tried twice, since a second try would hide in the time of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.arrivals import arrival_times, send_all
from adaptivespec.eval.targets.background import Background
from adaptivespec.eval.targets.base import Answer, Ask, Target
from adaptivespec.eval.targets.responses import BadAnswer, Turn, together
from adaptivespec.eval.tasks.base import Item

__all__ = ["ServerTarget"]

CONNECT_S = 10.0
REQUEST_S = 600.0
SET_BY_RUN = frozenset(
    {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
    | {"stop", "temperature", "seed", "ignore_eos", "n", "logprobs", "top_logprobs"}
)
"""Fields that an arm may not set: arms would then answer different questions."""
NOT_GIVEN = "-"
SHORT = 300


class ServerTarget(Target):
    """A server that is running already.

    Args:
        base_url: such as "http://localhost:8000"; "/v1" is added where there is no path.
        name: of the target, and of its one arm when `bodies` is not given.
        api_key: sent as a bearer token; None for servers without keys.
        model: as the server calls it; None takes the one that it lists first.
        bodies: arm name -> fields added to the body of its requests, such as
            {"rule": "margin:0.2"} or SGLang's {"custom_params": {...}}.
        timeout: seconds that one turn may take; `connect_timeout` until it is connected.

    Raises:
        TargetError: the server cannot be reached, has no such model, or refuses the key.
        ConfigError: an arm sets a field that the run sets.
    """

    def __init__(
        self,
        base_url: str,
        name: str = "server",
        api_key: str | None = None,
        model: str | None = None,
        bodies: Mapping[str, Mapping[str, Any]] | None = None,
        timeout: float = REQUEST_S,
        connect_timeout: float = CONNECT_S,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise TargetError(
                "servers are asked through the openai client, which is not installed",
                field=name,
                remedy="pip install 'adaptivespec[eval]'",
            ) from error
        self._bodies = {arm: dict(body) for arm, body in (bodies or {name: {}}).items()}
        for arm, body in self._bodies.items():
            if taken := sorted(SET_BY_RUN & body.keys()):
                raise ConfigError(
                    f"arm {arm!r} sets {', '.join(taken)}, which the run sets for all arms",
                    field="bodies",
                )
        self._url, self._timeout, self._openai = _address(base_url), timeout, openai
        self._background = Background()
        self._client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=api_key or NOT_GIVEN,  # else the client takes a key from the environment
            max_retries=0,
            # A connection that the server closes for idleness just as it is used again would be an
            # error of ours: each request makes its own, and its time has that in it.
            default_headers={"Connection": "close"},
            timeout=openai.Timeout(timeout, connect=connect_timeout),
        )
        self._logprobs = True
        try:
            served = self._choose(model)
        except BaseException:
            self.close()
            raise
        self._model = served["id"]
        self._sglang = served["owned_by"] == "sglang"
        self.identity = {"model": served["id"], "owned_by": served["owned_by"]}
        owner = f", owned by {served['owned_by']}" if served["owned_by"] else ""
        self.about = f"{public(self._url)}, model {served['id']}{owner}"

    @property
    def arms(self) -> Sequence[Arm]:
        return [Arm(name) for name in self._bodies]

    def answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        return self._background.run(self._answer(arm, item, ask))

    def answer_many(
        self,
        arm: Arm,
        items: Sequence[Item],
        ask: Ask,
        *,
        concurrency: int | None = None,
        request_rate: float | None = None,
        seed: int = 0,
        on_answer: Callable[[Item, Answer], object],
    ) -> None:
        """Ask all items as a serving benchmark does; each ends in one call of `on_answer`.

        Args:
            concurrency: requests under way at once, at most; None sets no bound.
            request_rate: mean arrivals per second of a Poisson process; None sends as soon as
                `concurrency` allows. Times count from the sending of a request: with both, what
                it waited for a free place is not in them.
            seed: of the arrivals.
            on_answer: called in the client's thread, one call at a time, as answers end and while
                others are under way; it has to be quick. What it raises ends the run, as Ctrl-C
                and `close` do: requests under way are cancelled.
        """
        times = arrival_times(len(items), request_rate, seed)

        async def send(item: Item) -> None:
            on_answer(item, await self._answer(arm, item, ask))

        self._background.run(send_all(items, times, concurrency, send))

    def close(self) -> None:
        """Cancel what is under way, in whatever thread it was asked, and close connections."""
        self._background.close(self._client.close())

    def _choose(self, model: str | None) -> dict[str, str]:
        """Id and owner of the model asked for, as the server lists it."""
        remedy = "Is the server running, and is this its address?"
        try:
            listed = self._background.run(self._models())
        except self._openai.AuthenticationError as error:
            raise TargetError(
                self._words(error), field=public(self._url), remedy="Give its API key"
            ) from None
        except self._openai.NotFoundError as error:
            raise TargetError(
                self._words(error),
                field=public(self._url),
                remedy="The address has to end as OpenAI's does, mostly in /v1",
            ) from None
        except Exception as error:
            raise TargetError(self._words(error), field=public(self._url), remedy=remedy) from None
        for entry in listed:
            if model in (None, entry["id"]):
                return entry
        names = ", ".join(entry["id"] for entry in listed) or "none"
        raise TargetError(
            f"has no model {model!r}" if model else "lists no model",
            field=public(self._url),
            remedy=f"It lists: {names}",
        )

    async def _models(self) -> list[dict[str, str]]:
        try:
            entries = (await self._client.models.list()).data or []
            return [
                {"id": str(entry.id), "owned_by": str(getattr(entry, "owned_by", None) or "")}
                for entry in entries
            ]
        except AttributeError:  # the client does not check what it is given
            raise BadAnswer("no list of models: this is not OpenAI's interface") from None

    async def _answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        """All turns of an item; an error of any of them is the answer's."""
        messages: list[dict[str, str]] = []
        turns: list[Turn] = []
        begin = perf_counter()
        try:
            for user in item.turns:
                messages.append({"role": "user", "content": user})
                turn = Turn(begin)
                async with asyncio.timeout(self._timeout):
                    await self._turn(turn, arm, messages, ask)
                messages.append({"role": "assistant", "content": turn.text})
                turns.append(turn)
            return together(turns, perf_counter() - begin)
        except Exception as error:  # of one request: the others go on
            return Answer(seconds=perf_counter() - begin, error=self._words(error))

    async def _turn(self, turn: Turn, arm: Arm, messages: list[dict[str, str]], ask: Ask) -> None:
        extra = dict(self._bodies[arm.name])
        if ask.ignore_eos:
            extra["ignore_eos"] = True
        # SGLang tells of single requests only when asked to, and of rules only outside of streams.
        whole = self._sglang and ask.detail
        if self._sglang:
            extra.setdefault("return_meta_info" if whole else "return_spec_tokens_details", True)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "extra_body": extra,
        }
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.temperature > 0:
            body["seed"] = ask.seed
        if not whole:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        create: Any = self._client.chat.completions.create
        wants_logprobs = ask.detail and self._logprobs
        try:
            response = await create(**body, **({"logprobs": True} if wants_logprobs else {}))
        except self._openai.APIStatusError as error:
            if not (wants_logprobs and error.status_code < 500 and "logprob" in str(error).lower()):
                raise
            self._logprobs = False  # refused: details are asked for without them from here on
            response = await create(**body)
        if whole:
            turn.add(response)
        else:
            async with response as stream:
                async for chunk in stream:
                    turn.add(chunk)
        turn.check()

    def _words(self, error: BaseException) -> str:
        """An error in one short line that begins with its kind."""
        openai = self._openai
        if isinstance(error, openai.APIStatusError):
            return _short(f"http {error.status_code}: {error.message}")
        if isinstance(error, (TimeoutError, openai.APITimeoutError)):
            return f"timeout: no whole answer in {self._timeout:g} s"
        if isinstance(error, openai.APIConnectionError):
            return _short(f"connection: {error.__cause__ or error}")
        if isinstance(error, openai.APIError):
            return _short(f"server: {error.message}")
        if isinstance(error, BadAnswer):
            return _short(f"answer: {error}")
        return _short(f"answer: {type(error).__name__}: {error}")


def _address(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TargetError(
            "is no address of a server",
            field="base_url",
            remedy="Write it as http://HOST:PORT/v1",
        )
    return base_url if parts.path.strip("/") else urlunsplit(parts._replace(path="/v1"))


def public(url: str) -> str:
    """The address without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 3] + "..."
