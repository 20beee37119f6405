"""How much a server gains from many clients at once.

Starts `adaptivespec serve` once per setting and asks it with 1, 2, 4, ... clients, each sending one
request after another; levels and settings take turns within every round, so that a busy moment of
the machine falls on all of them. Every client streams, as people's do.

    python benchmarks/serving.py --rounds 5 --output results/serving.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

COMMAND = str(Path(sys.executable).with_name("adaptivespec"))
SETTINGS = {
    "plain": ["--policy", "none"],
    "strict, drafts as alone": ["--adapt-to-load", "off"],
    "strict": [],
    "margin 0.2": ["--rule", "margin:0.2"],
    "margin 0.2, less drafted": ["--rule", "margin:0.2", "--adapt-to-load", "all"],
}
TOPICS = (
    "rivers of Europe", "how bread is made", "the number seven", "a fox and a crow",
    "adding two numbers in Python", "why leaves are green", "the moon", "a letter to a friend",
    "sorting a list", "the history of tea", "three fruits", "how a bicycle works",
    "a short poem", "boiling water", "maps", "a day at the sea",
)  # fmt: skip


@dataclass(frozen=True)
class Level:
    """What one setting did for one number of clients in one round."""

    setting: str
    clients: int
    tokens_per_s: float
    first_token_s: float
    token_s: float


async def _one(client: Any, model: str, topic: str, tokens: int) -> tuple[int, float, float]:
    """Tokens of an answer, seconds to its first and seconds between the others."""
    begin = time.perf_counter()
    first = None
    count = 0
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"Write a few sentences about {topic}."}],
        temperature=0,
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    async for chunk in stream:
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = time.perf_counter() - begin
        if chunk.usage is not None:
            count = chunk.usage.completion_tokens
    total = time.perf_counter() - begin
    first = total if first is None else first
    return count, first, (total - first) / max(count - 1, 1)


async def _level(setting: str, url: str, clients: int, requests: int, tokens: int) -> Level:
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:
        model = (await client.models.list()).data[0].id

        async def work(at: int) -> list[tuple[int, float, float]]:
            topics = [TOPICS[(at + i * clients) % len(TOPICS)] for i in range(requests)]
            return [await _one(client, model, topic, tokens) for topic in topics]

        begin = time.perf_counter()
        answers = [a for part in await asyncio.gather(*map(work, range(clients))) for a in part]
        seconds = time.perf_counter() - begin
    counts, firsts, between = zip(*answers, strict=True)
    middle = statistics.median
    return Level(setting, clients, sum(counts) / seconds, middle(firsts), middle(between))


def _start(stack: ExitStack, arguments: list[str]) -> str:
    """Start a server; its address. It ends with the stack."""
    command = [COMMAND, "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    stack.callback(process.wait)
    stack.callback(process.terminate)
    for line in process.stderr or ():
        for word in line.split():
            if word.startswith("http://") and word.endswith("/v1"):
                return word
    raise SystemExit(f"the server did not start: {' '.join(command)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", default="1,2,4,8,16", help="levels, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2, help="of each client in each round")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--output", type=Path, help="JSON file for all that was measured")
    options = parser.parse_args()
    clients = [int(n) for n in options.clients.split(",")]
    console = Console()
    levels: list[Level] = []
    with ExitStack() as stack:
        urls = {name: _start(stack, arguments) for name, arguments in SETTINGS.items()}
        for name, url in urls.items():
            asyncio.run(_level(name, url, 2, 1, 16))
        turns = [
            (round, name, count)
            for round in range(options.rounds)
            for count in clients
            for name in urls
        ]
        for _, name, count in track(turns, "asking", console=console):
            level = _level(name, urls[name], count, options.requests, options.tokens)
            levels.append(asyncio.run(level))
    _show(console, levels, clients)
    if options.output:
        options.output.write_text(json.dumps([asdict(level) for level in levels], indent=1))


def _show(console: Console, levels: list[Level], clients: list[int]) -> None:
    """Medians over rounds; how many times one client's throughput."""
    table = Table("setting", "clients", "tokens/s", "x one client", "first token ms", "ms/token")
    for setting in SETTINGS:
        alone = 0.0
        for count in clients:
            found = [x for x in levels if (x.setting, x.clients) == (setting, count)]
            rate = statistics.median(x.tokens_per_s for x in found)
            alone = alone or rate
            table.add_row(
                setting,
                str(count),
                f"{rate:.0f}",
                f"{rate / alone:.2f}",
                f"{1e3 * statistics.median(x.first_token_s for x in found):.0f}",
                f"{1e3 * statistics.median(x.token_s for x in found):.1f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
