"""Doubles that slice, send and accumulate as SGLang's output streamer and tokenizer manager do."""

import gc
import pickle
import weakref

import pytest

from adaptivespec.integrations.sglang.reporting import KEY, attach_statistics, send_statistics
from adaptivespec.integrations.sglang.statistics import RequestStatistics


class Req:
    def __init__(self, rid):
        self.rid = rid
        self.output_ids = [7]  # the prefill's token
        self.customized_info = None
        self.send_token_offset = 0
        self.finished_len = None

    def finished(self):
        return self.finished_len is not None


def send(reqs):
    """One output of the scheduler: tokens and finish of each request, and the columns."""
    columns, sizes, finished = {}, [], []
    for req in reqs:
        output_ids = req.output_ids[: req.finished_len]
        start, req.send_token_offset = req.send_token_offset, len(output_ids)
        sizes.append(len(output_ids[start:]))
        finished.append(req.finished())
        for key, values in (req.customized_info or {}).items():
            column = columns.setdefault(key, [[None] * size for size in sizes[:-1]])
            column.append(values[start : len(output_ids)])
        for column in columns.values():
            if len(column) < len(sizes):
                column.append([None] * sizes[-1])
    return sizes, finished, pickle.loads(pickle.dumps(columns))  # noqa: S301


class State:
    def __init__(self):
        self.customized_info_accumulated = {}


class Manager:
    def update_request_meta_info(self, meta_info, state, customized_info, index, finish_reason):
        self.finish_reason = finish_reason
        for key, values in customized_info.items():
            accumulated = state.customized_info_accumulated.setdefault(key, [])
            accumulated.extend(values[index])
            meta_info[key] = accumulated


def receive(states, output, manager=None):
    """meta_info of each request of one output, as the hooked manager makes it."""
    manager = manager or Manager()
    made = []
    for index, (state, finished) in enumerate(zip(states, output[1], strict=True)):
        meta_info = {}
        attach_statistics(
            Manager.update_request_meta_info,
            manager,
            meta_info,
            state,
            output[2],
            index,
            {"type": "stop"} if finished else None,
        )
        made.append(meta_info)
    return made


def statistics():
    return RequestStatistics(rule="margin:kappa=0.2", policy="dcs", lossless=False)


def request(rid="a", metrics=None):
    req, stats = Req(rid), statistics()
    send_statistics(req, stats, metrics)
    return req, stats


def decode(req, stats, accepted, regret=()):
    """One round: noted first, then its tokens are appended."""
    stats.add_round(len(req.output_ids), accepted, regret, (5, 4, 16))
    req.output_ids += [7] * (accepted + 1)


def test_the_response_carries_the_summary_of_the_answer():
    req, stats = request()
    decode(req, stats, 3, [0.5, -1.0, -1.0])
    decode(req, stats, 1)
    req.finished_len = 7
    (meta_info,) = receive([State()], send([req]))
    assert meta_info == {KEY: stats.summary(7)}
    assert meta_info[KEY]["promotions"] == [stats.summary(7)["promotions"][0]]


def test_tokens_behind_the_end_are_not_in_it():
    req, stats = request()
    decode(req, stats, 3, [-1.0, -1.0, 0.5])
    req.finished_len = 3
    (meta_info,) = receive([State()], send([req]))
    assert meta_info[KEY]["num_accepted_draft_tokens"] == 2
    assert meta_info[KEY]["promotions"] == []


def test_every_chunk_of_a_stream_carries_the_summary_so_far_and_the_last_the_promotions():
    req, stats = request()
    state, chunks = State(), []
    for _ in range(3):
        chunks += receive([state], send([req]))
        decode(req, stats, 1, [0.5])
    req.finished_len = len(req.output_ids)
    chunks += receive([state], send([req]))
    assert [chunk[KEY]["num_spec_steps"] for chunk in chunks] == [0, 1, 2, 3]
    assert [chunk[KEY]["num_promoted_tokens"] for chunk in chunks] == [0, 1, 2, 3]
    assert ["promotions" in chunk[KEY] for chunk in chunks] == [False, False, False, True]
    assert state.customized_info_accumulated == {}  # nothing for SGLang to slice or to repeat


def test_slices_are_as_long_as_the_output_they_go_with():
    req, stats = request()
    decode(req, stats, 3)
    sizes, _, columns = send([req])
    assert sizes == [5]
    assert columns[KEY][0][:-1] == [None] * 4
    assert columns[KEY][0][-1]["num_accepted_draft_tokens"] == 3


def test_an_end_without_a_new_token_is_reported():
    req, stats = request()
    decode(req, stats, 1)
    send([req])
    req.finished_len = len(req.output_ids)
    sizes, finished, columns = send([req])
    assert (sizes, finished) == ([0], [True])
    (meta_info,) = receive([State()], (sizes, finished, columns))
    assert meta_info[KEY] == stats.summary(3)


def test_other_requests_of_the_batch_get_no_statistics():
    req, stats = request("b")
    decode(req, stats, 1)
    first, last = Req("a"), Req("c")
    made = receive([State(), State(), State()], send([first, req, last]))
    assert [KEY in meta_info for meta_info in made] == [False, True, False]


def test_each_request_gets_its_own():
    pairs = [request(rid) for rid in "ab"]
    for accepted, (req, stats) in enumerate(pairs):
        decode(req, stats, accepted)
    made = receive([State(), State()], send([req for req, _ in pairs]))
    assert [meta_info[KEY]["num_accepted_draft_tokens"] for meta_info in made] == [0, 1]


def test_other_information_of_a_request_is_left_to_sglang():
    req, stats = request()
    req.customized_info["entropy"] = [0.1]
    other = Req("other")
    other.customized_info = {"entropy": [0.9]}
    states = [State(), State()]
    first = receive(states, send([req, other]))
    decode(req, stats, 1)
    req.customized_info["entropy"] += [0.2, 0.3]
    other.output_ids.append(7)
    other.customized_info["entropy"].append(0.8)
    second = receive(states, send([req, other]))
    assert first[1] == second[1] == {"entropy": [0.9, 0.8]}  # the same growing list
    assert second[0]["entropy"] == [0.1, 0.2, 0.3]
    assert second[0][KEY]["num_spec_steps"] == 1


@pytest.mark.parametrize("customized_info", [{}, {"entropy": [[0.1]]}])
def test_an_output_without_statistics_passes_through(customized_info):
    state, manager, meta_info = State(), Manager(), {}
    attach_statistics(
        Manager.update_request_meta_info,
        manager,
        meta_info,
        state,
        customized_info,
        0,
        {"type": "length"},
    )
    assert meta_info == {key: values[0] for key, values in customized_info.items()}
    assert manager.finish_reason == {"type": "length"}


def test_what_others_put_on_a_request_stays():
    req = Req("a")
    req.customized_info = {"entropy": [0.1]}
    send_statistics(req, statistics())
    assert req.customized_info["entropy"] == [0.1]


def test_a_finished_request_is_freed_at_once():
    req, _ = request()
    gone = weakref.ref(req)
    gc.disable()
    try:
        del req
        assert gone() is None
    finally:
        gc.enable()


class Recorder:
    """Stands for ``Metrics``."""

    def __init__(self):
        self.tokens = 0
        self.promoted = 0
        self.requests = []

    def advance(self, before, after, num_tokens):
        self.tokens += num_tokens
        self.promoted += after["num_promoted_tokens"] - before.get("num_promoted_tokens", 0)

    def count_request(self, lossless):
        self.requests.append(lossless)


def test_metrics_grow_by_what_was_sent_and_count_a_request_once():
    metrics = Recorder()
    req, stats = request(metrics=metrics)
    for _ in range(3):
        send([req])
        decode(req, stats, 2, [0.5, -1.0])
    assert (metrics.tokens, metrics.promoted, metrics.requests) == (7, 2, [])
    req.finished_len = 9  # one token of the last round is cut
    send([req])
    assert (metrics.tokens, metrics.promoted, metrics.requests) == (9, 3, [False])


def test_tokens_sent_before_the_statistics_began_are_counted():
    metrics, req = Recorder(), Req("a")
    send([req])
    send_statistics(req, statistics(), metrics)
    req.output_ids += [7, 7]
    send([req])
    assert metrics.tokens == 3
