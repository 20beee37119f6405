"""How much a server gains from many clients at once.

Starts `adaptivespec serve` once per setting and asks it with 1, 2, 4, ... clients, each sending one
request after another; levels and settings take turns within every round, so that a busy moment of
the machine falls on all of them. Every client streams.

    python benchmarks/serving.py --rounds 5 --output results/serving.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

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


async def _one(port: int, topic: str, tokens: int) -> tuple[int, float, float]:
    """Tokens of an answer, seconds to its first and seconds between the others.

    By hand: the client runs on the same processor, and one that parses every chunk takes a good
    part of what it measures.
    """
    body = {
        "messages": [{"role": "user", "content": f"Write a few sentences about {topic}."}],
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    content = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + content)
    received = bytearray()
    first = None
    while piece := await reader.read(65536):
        received += piece
        if first is None and received.count(b"data: ") > 1:  # after the role
            first = time.perf_counter() - begin
    total = time.perf_counter() - begin
    writer.close()
    found = re.search(rb'"completion_tokens":(\d+)', received)
    if found is None or first is None or b"data: [DONE]" not in received:
        raise SystemExit(f"no whole answer: {bytes(received[:500])!r}")
    count = int(found[1])
    return count, first, (total - first) / max(count - 1, 1)


async def _level(setting: str, port: int, clients: int, requests: int, tokens: int) -> Level:
    async def work(at: int) -> list[tuple[int, float, float]]:
        topics = [TOPICS[(at + i * clients) % len(TOPICS)] for i in range(requests)]
        return [await _one(port, topic, tokens) for topic in topics]

    begin = time.perf_counter()
    answers = [a for part in await asyncio.gather(*map(work, range(clients))) for a in part]
    seconds = time.perf_counter() - begin
    counts, firsts, between = zip(*answers, strict=True)
    middle = statistics.median
    return Level(setting, clients, sum(counts) / seconds, middle(firsts), middle(between))


def _start(stack: ExitStack, arguments: list[str]) -> int:
    """Start a server; its port. It ends with the stack."""
    command = [COMMAND, "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    stack.callback(process.wait)
    stack.callback(process.terminate)
    for line in process.stderr or ():
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
            return int(found[1])
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
    console = Console(width=100)
    levels: list[Level] = []
    with ExitStack() as stack:
        ports = {name: _start(stack, arguments) for name, arguments in SETTINGS.items()}
        for name, port in ports.items():
            asyncio.run(_level(name, port, 2, 1, 16))
        turns = [
            (round, name, count)
            for round in range(options.rounds)
            for count in clients
            for name in ports
        ]
        for _, name, count in track(turns, "asking", console=console):
            level = _level(name, ports[name], count, options.requests, options.tokens)
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
