"""Many clients, some of them rude: every accepted request ends once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import openai

from adaptivespec.serve.ticket import Ticket
from fakes.serving import MODEL, Served, counting, serving

KINDS = ("whole", "stream", "slow", "leave", "leave whole", "long", "garbage")
CONCURRENCY = 16


@dataclass(frozen=True)
class Plan:
    """One client: what it asks and how it behaves."""

    kind: str
    prompt: str
    options: dict[str, Any]


def plans(count: int, seed: int) -> list[Plan]:
    dice = random.Random(seed)
    weights = (30, 40, 5, 10, 5, 5, 5)
    made = []
    for _ in range(count):
        options: dict[str, Any] = {
            "max_tokens": dice.randint(1, 60),
            "temperature": dice.choice([0, 0, 1.0]),
            "seed": dice.randint(0, 99),
        }
        if dice.random() < 0.3:
            options["extra_body"] = {"rule": "margin", "kappa": 0.3, "policy": "chain:3"}
        prompt = "".join(dice.choices("abcdefghijk", k=dice.randint(1, 90)))
        made.append(Plan(dice.choices(KINDS, weights)[0], prompt, options))
    return made


async def ask(client: openai.AsyncOpenAI, served: Served, plan: Plan) -> str:
    """What came of it: the text, or a word for what else."""
    create = client.completions.create
    fixed = {"model": MODEL, "prompt": plan.prompt}
    if plan.kind == "garbage":
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        body = b'{"prompt": "a", '
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        status = await reader.readline()
        writer.close()
        return "refused" if b" 400 " in status else repr(status)
    try:
        if plan.kind == "long":
            await create(model=MODEL, prompt="a" * 300, max_tokens=5)
            return "accepted"
        if plan.kind == "whole":
            return (await create(**fixed, **plan.options)).choices[0].text
        if plan.kind == "leave whole":
            options = {**plan.options, "max_tokens": 100}
            task = asyncio.create_task(create(**fixed, **options))
            await asyncio.sleep(0.01)
            task.cancel()
            return "left"
        text = ""
        stream = await create(**fixed, **plan.options, stream=True)
        async for chunk in stream:
            text += chunk.choices[0].text
            if plan.kind == "leave" and len(text) > 3:
                await stream.close()
                return "left"
            if plan.kind == "slow":
                await asyncio.sleep(0.005)
        return text
    except openai.BadRequestError as error:
        return str(error.code)
    except openai.RateLimitError as error:
        return "busy" if int(error.response.headers["retry-after"]) >= 1 else "never"


async def crowd(served: Served, asked: list[Plan]) -> list[str]:
    """All clients, CONCURRENCY at a time; whoever is told to come back does."""
    gate = asyncio.Semaphore(CONCURRENCY)
    url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:

        async def one(plan: Plan) -> str:
            async with gate:
                while (outcome := await ask(client, served, plan)) == "busy":
                    await asyncio.sleep(0.01)
                return outcome

        outcomes = await asyncio.gather(*map(one, asked))
    while served.service.running or served.service.waiting:
        await asyncio.sleep(0.001)
    return outcomes


def tickets_alive() -> int:
    gc.collect()
    return sum(type(thing) is Ticket for thing in gc.get_objects())


def test_two_hundred_clients_at_once() -> None:
    engine = counting(sharpness=3.0)
    asked = plans(200, seed=4)
    with serving(engine, slots=4, queue=8) as served:
        outcomes = asyncio.run(crowd(served, asked))
        kinds = Counter(plan.kind for plan in asked)
        assert set(kinds) == set(KINDS)
        for plan, outcome in zip(asked, outcomes, strict=True):
            if plan.kind in ("whole", "stream", "slow"):
                options = dict(plan.options)
                extra = options.pop("extra_body", {})
                alone = engine.generate(plan.prompt, raw=True, **options, **extra)
                assert outcome == alone.text, plan
            elif plan.kind == "long":
                assert outcome == "context_length_exceeded"
            elif plan.kind == "garbage":
                assert outcome == "refused"
            else:  # who wanted little may have got it all before it could leave
                assert outcome == "left" or plan.options["max_tokens"] < 60
        service = served.service
        assert (service.running, service.waiting) == (0, 0)
        assert service._slots.free == service.slots
        assert service._batch.members == []
        ended = sum(
            served.metric("request_success_total", finished_reason=reason)
            for reason in ("stop", "length")
        )
        complete = kinds["whole"] + kinds["stream"] + kinds["slow"]
        assert complete <= ended <= complete + kinds["leave"] + kinds["leave whole"]
        assert tickets_alive() == 0


CLIENT = """
import json, socket, sys
body = json.dumps({"prompt": "a", "max_tokens": 150, "temperature": 0, "stream": True,
                   "policy": "none"}).encode()
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
          b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
while b"data:" not in s.recv(4096):
    pass
print("reading", flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed_is_not_decoded_for() -> None:
    engine = counting()
    verify = engine.target.verify_many
    held: list[subprocess.Popen[str]] = []

    def patient(*arguments: Any) -> Any:
        """Decode a few tokens, and go on when the client is dead."""
        if engine.target.passes > 5:  # type: ignore[attr-defined]
            held[0].wait(30)
        return verify(*arguments)

    engine.target.verify_many = patient  # type: ignore[method-assign]
    with serving(engine) as served:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(served.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        held.append(client)
        assert client.stdout is not None
        assert client.stdout.readline() == "reading\n"
        client.send_signal(signal.SIGKILL)
        client.wait(30)
        client.stdout.close()
        assert client.stdin is not None
        client.stdin.close()

        async def settled() -> None:
            while served.service.running:
                await asyncio.sleep(0.001)

        asyncio.run(settled())
        assert engine.target.passes < 20  # type: ignore[attr-defined]
        assert tickets_alive() == 0
        body = json.dumps({"prompt": "a", "max_tokens": 4, "temperature": 0})
        assert "bcde" in post(served, body)


def post(served: Served, body: str) -> str:
    async def go() -> str:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x") as client:
            return (
                (await client.completions.create(model=MODEL, **json.loads(body))).choices[0].text
            )

    return asyncio.run(go())
