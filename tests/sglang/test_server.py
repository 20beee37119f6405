"""The HTTP server: errors, metrics, and what a client learns about its answer."""

from __future__ import annotations

import re

import pytest

from adaptivespec.eval.bench import ROWS, Bench, Load, run
from adaptivespec.eval.rows import read_rows
from adaptivespec.eval.selection import PerTask, Selection
from adaptivespec.eval.worker import TargetSpec
from harness import tiny_models
from harness.scenarios import Tiny
from harness.server import Server, serving

MARGIN = {"adaptivespec": {"rule": "margin", "kappa": 0.2}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with serving(Tiny(folder).served(), folder / "run") as running:
        yield running


def generate(server: Server, **changes):
    sampling = {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True, **changes}
    (prompt,) = tiny_models.prompts(1)
    return server.post("/generate", {"input_ids": prompt, "sampling_params": sampling})


def metric(server: Server, name: str) -> float:
    """Sum over a metric's labels, 0 when it is not there."""
    lines = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", server.get("/metrics"), re.MULTILINE)
    return sum(map(float, lines))


def test_a_generated_answer_says_what_was_promoted(server):
    status, strict = generate(server)
    assert status == 200
    assert strict["meta_info"]["adaptivespec"]["lossless"] is True
    status, lossy = generate(server, custom_params=MARGIN)
    assert status == 200
    own = lossy["meta_info"]["adaptivespec"]
    assert own["lossless"] is False
    assert own["num_promoted_tokens"] == len(own["promotions"]) > 0


def test_a_bad_request_is_400_and_names_the_field(server):
    status, answer = generate(server, custom_params={"adaptivespec": {"kappa": -1}})
    assert status == 400
    assert "custom_params.adaptivespec.kappa" in answer["error"]["message"]


def test_a_kappa_below_the_servers_bound_is_400(server):
    status, answer = generate(server, custom_params={"adaptivespec": {"rule": "margin:0.05"}})
    assert status == 400
    assert "at least 0.1" in answer["error"]["message"]


def test_chat_completions_take_the_clients_rule(server):
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0,
        "max_tokens": 30,
        "ignore_eos": True,
    }
    status, strict = server.post("/v1/chat/completions", body)
    assert status == 200
    status, lossy = server.post("/v1/chat/completions", {**body, "custom_params": MARGIN})
    assert status == 200
    texts = [answer["choices"][0]["message"]["content"] for answer in (strict, lossy)]
    assert texts[0] != texts[1]
    status, answer = server.post(
        "/v1/chat/completions", {**body, "custom_params": {"adaptivespec": {"kappa": "x"}}}
    )
    assert status == 400
    assert "custom_params.adaptivespec.kappa" in str(answer)


def test_metrics_grow_with_promotions(server):
    names = ("promoted_tokens", "regret_nats", "generation_tokens", "rounds", "requests")
    names = tuple(f"adaptivespec_{name}_total" for name in names)
    before = {name: metric(server, name) for name in names}
    generate(server, custom_params=MARGIN)
    assert all(metric(server, name) > before[name] for name in names)
    assert metric(server, "adaptivespec_lossless") == 1


def test_a_benchmark_measures_rules_that_requests_bring_along(server, tmp_path):
    """`adaptivespec bench --base-url`: what a rule promoted comes back with every graded answer."""
    strict = {"adaptivespec": {"rule": "strict"}}
    bodies = {"strict": {"custom_params": strict}, "margin": {"custom_params": MARGIN}}
    place = "adaptivespec.eval.targets.server:ServerTarget"
    bench = Bench(
        tasks=["lists"],
        arms=(),
        target=TargetSpec(place, {"base_url": server.address, "bodies": bodies}),
        server=True,
        selection=Selection(PerTask(4), 2, max_tokens=PerTask(24)),
        restarts=1,
        load=Load(concurrency=2),
    )
    settings = run(bench, tmp_path, lambda event: None, lambda text: None)
    assert (settings.baseline, [arm.name for arm in settings.arms]) == ("strict", list(bodies))
    rows = list(read_rows(tmp_path / ROWS))
    assert [row.answer.error for row in rows] == [None] * len(rows)
    assert len(rows) == 2 * 4 + 4 + 2 * 2
    graded = [row for row in rows if row.place.phase == "quality"]
    assert {(row.place.arm, row.answer.lossless) for row in graded} == {
        ("strict", True),
        ("margin", False),
    }
    promoted = {
        arm: sum(row.answer.stats["num_promoted_tokens"] for row in graded if row.place.arm == arm)
        for arm in bodies
    }
    assert promoted["strict"] == 0 < promoted["margin"]
    texts = {row.place.index: row.answer.text for row in graded if row.place.arm == "strict"}
    again = [row for row in rows if row.place.phase == "noise"]
    assert {row.place.index: row.answer.text for row in again} == texts
