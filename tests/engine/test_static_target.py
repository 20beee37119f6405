"""Passes that are captured once and replayed: what a graph must not get wrong, on the CPU.

Graphs are played by `fakes.tape.Tape`. test_target_contract.py holds the target to the rest.
"""

from __future__ import annotations

import gc
import inspect
import math
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec import Engine
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.eagle3_static import StaticEagle3Drafter
from adaptivespec.engine import session
from adaptivespec.nn import static
from adaptivespec.nn.static import LEAST_ROWS, StaticPass, bucket
from adaptivespec.policy.plan import TreePlan
from fakes import targets, tiny, tiny_engine
from fakes.scripted import COSTS
from fakes.tape import Tape

PROMPT = [5, 9, 11, 2, 40]
OPTIONS: list[dict[str, Any]] = [
    {"policy": "none"},
    {"policy": "chain:6"},
    {"policy": "static:5,4,16"},
    {"policy": "eagle2:6,7,60", "rule": "margin:0.3"},
    {"policy": "dcs", "temperature": 1.0, "seed": 2},
    {"policy": "medusa", "rule": "margin:0.1"},
]


@pytest.fixture
def tape() -> Tape:
    return Tape()


@pytest.fixture
def engine(tape: Tape) -> Engine:
    """The tiny target and head, captured by `tape`."""
    target = targets.static(tape, tiny.CONFIG)
    arguments = target.model.embedding, 5, tiny.MAX_LEN, torch.float32, target.model.output
    drafter = StaticEagle3Drafter(tiny.head(), *arguments, capture=tape)
    tokenizer: Any = tiny_engine.NumberTokenizer()
    made = Engine(target, tokenizer, drafter, "tiny")
    made._costs = COSTS
    return made


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["policy"])
def test_answers_are_those_of_uncaptured_passes(engine: Engine, options: dict[str, Any]) -> None:
    plain = tiny_engine.engine()
    for prompt in (PROMPT, [3], list(range(1, 41))):
        asked: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, **options}
        got, want = engine.generate(prompt, **asked), plain.generate(prompt, **asked)
        assert got.token_ids == want.token_ids
        about, wanted = got.stats.details(), want.stats.details()
        assert about.pop("regret_nats") == pytest.approx(wanted.pop("regret_nats"), abs=1e-3)
        assert about == wanted


def test_a_second_answer_captures_nothing(engine: Engine, tape: Tape) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "policy": "static:5,4,16"}
    first = engine.generate(PROMPT, **asked)
    gc.collect()  # its session is let go
    captures, replays = tape.captures, tape.replays
    assert captures > 0
    assert engine.generate(PROMPT, **asked).token_ids == first.token_ids
    assert tape.captures == captures
    assert tape.replays > replays


def test_sequences_side_by_side_do_not_share_memory(engine: Engine) -> None:
    asked: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "policy": "static:4,2,9"}
    prompts = [PROMPT, [7] * 20, [3, 4]]
    alone = [engine.generate(prompt, **asked).token_ids for prompt in prompts]
    streams = [engine.stream(prompt, **asked) for prompt in prompts]
    pending = [iter(stream) for stream in streams]
    while pending:
        pending = [chunks for chunks in pending if next(chunks, None) is not None]
    assert [stream.finish().token_ids for stream in streams] == alone


def test_a_cache_that_outgrows_its_graphs_captures_anew(
    engine: Engine, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers move when they grow: a graph would go on writing to the old ones."""
    monkeypatch.setattr(static, "_LEAST_CAPACITY", 16)
    monkeypatch.setattr(session, "INITIAL_ROWS", 16)
    asked: dict[str, Any] = {"max_tokens": 110, "ignore_eos": True, "policy": "static:5,3,12"}
    got = engine.generate(PROMPT, **asked)
    assert got.token_ids == tiny_engine.engine().generate(PROMPT, **asked).token_ids
    captures = tape.captures
    assert captures > 6  # at several capacities
    gc.collect()
    engine.generate(PROMPT, **asked)
    assert tape.captures == captures  # the memory that is taken over has grown already


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 40])
def test_rows_of_a_bucket_get_the_same_bits(tape: Tape, rows: int) -> None:
    """However many nodes a tree has, its root's row is that of plain decoding in that bucket."""
    target = targets.static(tape)
    tokens = [(7 * i + 3) % 61 for i in range(rows)]
    tree = DraftTree.from_parents(tokens, [-1, *(0 for _ in tokens[1:])])
    cache = target.new_cache(64)
    target.prefill(cache, PROMPT)
    found = target.verify(cache, tree).logits[0].clone()
    alone = target.verify(cache, DraftTree.root_only(tokens[0])).logits[0]
    if bucket(rows) == LEAST_ROWS:
        assert torch.equal(found, alone)
    assert torch.allclose(found, alone, atol=1e-4)


def test_what_a_larger_tree_left_does_not_matter(tape: Tape) -> None:
    target = targets.static(tape)
    wide = DraftTree.from_parents(list(range(3, 19)), [-1, 0, 1, 2, *range(3, 15)])
    small = DraftTree.from_parents([4, 9, 8], [-1, 0, 0])
    cache, fresh = target.new_cache(64), target.new_cache(64)
    for each in (cache, fresh):
        target.prefill(each, list(range(1, 61)) + list(range(1, 50)))  # little room is left
    target.verify(cache, wide)
    assert torch.equal(target.verify(cache, small).logits, target.verify(fresh, small).logits)


def test_numbers_that_are_none_do_not_outlive_their_sequence(tape: Tape) -> None:
    """A masked row takes part with weight 0, and 0 times NaN is NaN."""
    target = targets.static(tape)
    cache = target.new_cache(64)
    cache.k.fill_(math.nan)
    cache.v.fill_(math.inf)
    target.truncate(cache, 0)
    target.prefill(cache, PROMPT)
    assert target.verify(cache, DraftTree.chain([3, 4])).logits.isfinite().all()


def test_nor_do_those_that_a_head_was_given(engine: Engine) -> None:
    """They wait in the rows that a shorter reading, or a narrower level, leaves unfilled."""
    drafter = engine.drafter
    assert isinstance(drafter, StaticEagle3Drafter)
    state, width = drafter.new_state(64), len(drafter.tap_layers) * tiny.CONFIG.hidden_size
    plan = TreePlan(3, 3, 9)
    drafter.observe(state, list(range(12)), torch.full((12, width), math.nan))
    drafter.draft(state, plan)
    drafter.truncate(state, 0)
    taps = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
    found = []
    for each in (state, drafter.new_state(64)):
        drafter.observe(each, [3, 4], taps)
        found.append(drafter.draft(each, plan).tree)
    assert torch.equal(found[0].token, found[1].token)
    assert torch.equal(found[0].logq, found[1].logq)


def test_a_cache_is_let_go_though_graphs_were_captured_over_it(tape: Tape) -> None:
    target = targets.static(tape)
    cache = target.new_cache(64)
    target.verify(cache, DraftTree.chain([3, 4]))
    memory, captures = cache._memory, tape.captures
    del cache
    gc.collect()
    other = target.new_cache(300)
    assert other._memory is memory
    assert (other.length, other.capacity) == (0, 512)
    target.verify(other, DraftTree.chain([3, 4]))
    assert tape.captures == captures + 1  # it had to grow


@given(st.integers(1, 5000), st.integers(0, 9))
def test_buckets_are_powers_of_two_that_suffice(rows: int, least: int) -> None:
    size = bucket(rows, 1 << least)
    assert size >= max(rows, 1 << least)
    assert size & (size - 1) == 0
    assert size == 1 << least or size < 2 * rows


class TestTape:
    """The stand-in itself finds what cannot be captured, and repeats what can."""

    def run(self, tape: Tape, body: Any, **inputs: torch.Tensor) -> StaticPass:
        static_pass = StaticPass(inputs, body, tape)
        static_pass.run()
        return static_pass

    def test_a_replay_reads_what_the_inputs_hold_then(self, tape: Tape) -> None:
        x = torch.ones(3)
        made = self.run(tape, lambda: [(x[1:] * 2).sum()[None]], x=x)
        x.copy_(torch.arange(3.0))
        made.run()
        assert made.outputs[0].tolist() == [6.0]
        assert (tape.captures, tape.replays) == (1, 2)

    def test_numbers_of_the_host_stay_as_they_were(self, tape: Tape) -> None:
        x, factor = torch.ones(2), [2.0]
        made = self.run(tape, lambda: [x * factor[0]], x=x)
        factor[0] = 5.0
        made.run()
        assert made.outputs[0].tolist() == [2.0, 2.0]

    @pytest.mark.parametrize(
        "body",
        [
            lambda x: [x * float(x.sum())],
            lambda x: [x[x > 0]],
            lambda x: [torch.where(x > 0, x, 2.0)],
            lambda x: [x + torch.tensor([1.0, 2.0])],
            lambda x: [x + (1.0 if torch.equal(x, x) else 0.0)],
        ],
    )
    def test_neither_waiting_nor_data_of_the_host(self, tape: Tape, body: Any) -> None:
        x = torch.ones(2)
        with pytest.raises(AssertionError, match="cannot be captured"):
            self.run(tape, lambda: body(x), x=x)


@mock.patch.multiple(
    torch.cuda,
    graph_pool_handle=mock.DEFAULT,
    CUDAGraph=mock.DEFAULT,
    Stream=mock.DEFAULT,
    stream=mock.DEFAULT,
    device=mock.DEFAULT,
    current_stream=mock.DEFAULT,
)
def test_graphs_are_captured_as_torch_wants_it(**fakes: Any) -> None:
    """Warm on the stream of the capture, captured once there, in the pool that all share."""
    order: list[str] = []
    place = torch.device("cuda", 1)
    with mock.patch.object(torch.cuda, "graph", autospec=True) as graph:
        graph.return_value.__enter__.side_effect = lambda *_: order.append("begin")
        graph.return_value.__exit__.side_effect = lambda *_: order.append("end")
        graphs = static.CudaGraphs(place)
        replay = graphs.capture(lambda: order.append("work"))
        graphs.wait()
    assert order == ["work", "begin", "work", "end"]
    inspect.signature(torch.cuda.graph.__init__).bind(
        None, *graph.call_args.args, **graph.call_args.kwargs
    )
    assert graph.call_args.kwargs["pool"] is fakes["graph_pool_handle"].return_value
    assert graph.call_args.kwargs["stream"] is fakes["Stream"].return_value
    assert replay is fakes["CUDAGraph"].return_value.replay
    fakes["device"].assert_called_with(place)
    fakes["current_stream"].return_value.synchronize.assert_called_once_with()
