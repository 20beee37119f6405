"""What the GPU check asks of whom, with which models, and for how long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu import models, plan, prompts
from hypothesis import given
from hypothesis import strategies as st


class TestTime:
    @given(
        st.floats(0, 1000),
        st.lists(st.floats(0.1, 5), min_size=1, max_size=4),
        st.floats(0, 100),
    )
    def test_shares_are_proportional_and_those_behind_can_start(self, left, weights, minimum):
        enough, most = plan.allot(left, weights, minimum)
        assert enough == pytest.approx(left * weights[0] / sum(weights))
        assert enough <= most
        if most > enough:
            assert left - most >= minimum * (len(weights) - 1) - 1e-9

    def test_the_last_engine_may_take_all_that_is_left(self):
        assert plan.allot(100.0, [2.0], 40.0) == (100.0, 100.0)


class TestPlan:
    @pytest.mark.parametrize("name", plan.ENGINES)
    def test_what_is_checked_comes_before_what_is_timed(self, name):
        work = plan.passes(name, plan.CUDA, 0.2)
        needed = [each.needed for each in work]
        assert needed == sorted(needed, reverse=True)
        assert all(each.timed is None for each in work if each.needed)
        assert work == plan.passes(name, plan.CUDA, 0.2)

    def test_every_repeat_times_every_arm_at_every_batch_size(self):
        for name, kappas in [("plain", {None}), ("dcs", {1.0, 0.2})]:
            timed = [each.timed for each in plan.passes(name, plan.CUDA, 0.2) if each.timed]
            cells = [(cell["repeat"], cell["kappa"], cell["batch"]) for cell in timed]
            assert sorted(cells, key=str) == sorted(
                ((r, k, b) for r in range(3) for k in kappas for b in (1, 16)), key=str
            )

    def test_stock_and_plain_get_no_options_of_ours(self):
        for name in ("plain", "stock"):
            for each in plan.passes(name, plan.CUDA, 0.2):
                assert all("custom_params" not in r["sampling_params"] for r in each.requests)

    def test_kappas_and_temperatures_are_mixed_within_a_batch(self):
        kappas = next(
            p for p in plan.passes("static", plan.CPU, 0.2) if p.name == "kappas together"
        )
        assert kappas.batch == len(kappas.requests) > 1
        assert [
            r["sampling_params"]["custom_params"]["adaptivespec"]["kappa"] for r in kappas.requests
        ] == [1.0, 0.5, 0.2]
        mixed = next(p for p in plan.passes("dcs", plan.CPU, 0.2) if p.name == "temperatures")
        assert [r["sampling_params"]["temperature"] for r in mixed.requests] == [0.0, 0.7, 0.0]

    def test_stock_differs_from_the_plugin_in_the_algorithm_alone(self):
        ours, stock = (
            plan.engine_arguments(name, "t", "d", (5, 4, 16), "cuda", plan.CUDA)
            for name in ("static", "stock")
        )
        differing = {key for key in ours if ours[key] != stock.get(key)}
        assert differing == {"speculative_algorithm"}
        assert ours.keys() == stock.keys()

    @pytest.mark.parametrize("name", ["static", "dcs"])
    def test_the_plugin_reads_its_configuration(self, name):
        from adaptivespec.integrations.sglang.config import load_config

        settings = load_config(plan.plugin_configuration(name, (5, 4, 16)))
        assert settings.rule == "strict"
        assert settings.policy == {"static": "static:5,4,16", "dcs": "dcs"}[name]
        assert max(plan.CUDA.batches) <= settings.max_batch
        assert plan.plugin_configuration("stock", (5, 4, 16)) is None


class TestPrompts:
    def test_our_own_repeat(self):
        assert prompts.load(None, 14)[12:] == list(prompts.OWN[:2])

    def test_task_files_are_taken_in_turn(self, tmp_path):
        (tmp_path / "gsm8k_test.jsonl").write_text(
            "".join(json.dumps({"question": f"q{i}"}) + "\n" for i in range(3))
        )
        (tmp_path / "mt_bench.jsonl").write_text(
            "".join(json.dumps({"turns": [f"t{i}"]}) + "\n" for i in range(3))
        )
        assert prompts.load(tmp_path, 5) == ["q0", "t0", "q1", "t1", "q2"]

    def test_a_folder_without_tasks_is_an_error(self, tmp_path):
        with pytest.raises(SystemExit, match="holds none of"):
            prompts.load(tmp_path, 2)


def cache(hub, repository, size=10, shards=None):
    """A download in the hub's cache; with ``shards`` an index names them."""
    folder = hub / f"models--{repository.replace('/', '--')}" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "a.safetensors").write_bytes(b"x" * size)
    if shards:
        index = {"weight_map": {str(i): name for i, name in enumerate(shards)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


class TestModels:
    LLAMA, HEAD = next((target, heads[-1]) for target, heads in models.PAIRS.items())

    @pytest.fixture(autouse=True)
    def embedded(self, monkeypatch):
        monkeypatch.setattr(models, "embedded", lambda why: models.Models("small", "head", why))

    def find(self, hub, *names, memory=1000.0, **environment):
        return models.find(*(names or (None, None)), environment, hub, memory)

    def test_arguments_come_first(self, tmp_path):
        found = self.find(tmp_path, "a", "b", ADAPTIVESPEC_GPU_MODEL="c")
        assert found[:2] == ("a", "b")

    def test_then_the_environment(self, tmp_path):
        names = {"ADAPTIVESPEC_GPU_MODEL": "c", "ADAPTIVESPEC_GPU_DRAFT": "d"}
        assert self.find(tmp_path, **names)[:2] == ("c", "d")

    def test_a_known_model_brings_its_head_and_a_cached_one_is_preferred(self, tmp_path):
        first = models.PAIRS[self.LLAMA][0]
        assert self.find(tmp_path, self.LLAMA, None).draft == first
        folder = cache(tmp_path, self.HEAD)
        found = self.find(tmp_path, self.LLAMA, None)
        assert found[:2] == (self.LLAMA, str(folder))

    def test_an_unknown_model_needs_a_head(self, tmp_path):
        with pytest.raises(SystemExit, match="no EAGLE-3 head is known for a"):
            self.find(tmp_path, "a", None)

    def test_then_a_whole_pair_of_the_cache_that_fits(self, tmp_path):
        target = cache(tmp_path, self.LLAMA)
        assert self.find(tmp_path).target == "small"
        head = cache(tmp_path, self.HEAD)
        assert self.find(tmp_path)[:2] == (str(target), str(head))
        assert self.find(tmp_path, memory=25.0).target == "small"
        assert self.find(tmp_path, memory=None).why == "no GPU"

    def test_half_a_download_is_none(self, tmp_path):
        cache(tmp_path, self.LLAMA, shards=["a.safetensors", "b.safetensors"])
        cache(tmp_path, self.HEAD)
        assert self.find(tmp_path).target == "small"

    def test_the_hub_keeps_its_cache_where_its_variables_say(self):
        assert models.hub_folder({"HF_HUB_CACHE": "/x"}) == Path("/x")
        assert models.hub_folder({"HF_HOME": "/y"}) == Path("/y/hub")
