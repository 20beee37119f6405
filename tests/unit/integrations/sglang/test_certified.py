"""`rule_config` of the plugin: the certificate's rule where it holds, else strict, and said."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptivespec.calibrate.identity import Weights, weights_at
from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang import algorithm
from adaptivespec.integrations.sglang.config import (
    PluginConfig,
    brings_rule,
    describe,
    load_config,
    margin_options,
)
from adaptivespec.integrations.sglang.requests import Requests
from adaptivespec.policy import make_policy
from fakes.certificates import certificate


def checkpoint(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return folder


@pytest.fixture
def args(tmp_path: Path) -> SimpleNamespace:
    """SGLang's arguments with a model and a head on this disk."""
    return SimpleNamespace(
        model_path=str(checkpoint(tmp_path / "model", b"m")),
        speculative_draft_model_path=str(checkpoint(tmp_path / "head", b"h")),
        speculative_num_steps=None,
        speculative_eagle_topk=None,
        speculative_num_draft_tokens=None,
        speculative_adaptive_config=None,
        device="cuda",
        max_running_requests=None,
        attention_backend="fa3",
        page_size=1,
    )


@pytest.fixture
def path(tmp_path: Path, args: SimpleNamespace) -> str:
    """A certificate of that model and head, as another engine names them."""
    file = tmp_path / "certificate.json"
    certificate(
        model=weights_at(args.model_path, "org/model"),
        head=weights_at(args.speculative_draft_model_path, "org/head"),
    ).write(file)
    return str(file)


def served(args: SimpleNamespace, **settings: Any) -> Any:
    return algorithm.served_config(load_config(json.dumps(settings)), args)


def test_without_one_nothing_changes(args):
    config = PluginConfig(rule="safe", policy="static")
    assert algorithm.served_config(config, args) == (config, None, (), "")


def test_its_rule_and_policy_serve(args, path):
    found = served(args, rule_config=path)
    assert (found.config.rule, found.config.policy) == ("margin:0.3", "dcs")
    assert margin_options(found.config).kappa == 0.3
    assert (found.temperature, found.warning) == (0.0, "")
    assert [note.partition(":")[0] for note in found.notes] == [
        "model compared by digest",
        "head compared by digest",
    ]


def test_its_policy_is_taken_where_none_is_set(args, path, tmp_path):
    file = tmp_path / "chain.json"
    chain = make_policy("static:5,1,6").label
    certificate(
        policy=chain,
        model=weights_at(args.model_path, "m"),
        head=weights_at(args.speculative_draft_model_path, "h"),
    ).write(file)
    assert served(args, rule_config=str(file)).config.policy == chain
    for policy in ("static:5,1,6", "static"):
        flags = {"speculative_num_steps": 5, "speculative_eagle_topk": 1}
        same = SimpleNamespace(**{**vars(args), **flags, "speculative_num_draft_tokens": 6})
        found = served(same, rule_config=str(file), policy=policy)
        assert (found.config.rule, found.config.policy) == ("margin:0.3", policy)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "static:5,4,16"}, "policy is static:"),
        ({"model_path": "org/model"}, ""),  # by name
        ({"model_path": "org/other"}, "model is org/other, the certificate's org/model"),
        ({"speculative_draft_model_path": "org/none"}, "head is org/none"),
        ({"model": b"x"}, "model is "),
        ({"head": b"x"}, "head is "),
    ],
)
def test_another_model_head_or_policy_is_strict_and_said(args, path, changes, words):
    settings = {"rule_config": path}
    for name, value in changes.items():
        if name == "policy":
            settings["policy"] = value
        elif isinstance(value, bytes):
            place = "model_path" if name == "model" else "speculative_draft_model_path"
            (Path(getattr(args, place)) / "model.safetensors").write_bytes(value)
        else:
            setattr(args, name, value)
    found = served(args, **settings)
    assert found.config.rule == ("strict" if words else "margin:0.3")
    assert words in found.warning
    if words:
        assert f"adaptivespec calibrate {args.model_path} --draft-model" in found.warning
        assert margin_options(found.config).lossless
        assert found.temperature is None


def test_a_policy_that_does_not_work_here_is_a_difference(args, tmp_path):
    file = tmp_path / "thrift.json"
    certificate(
        policy="thrift",
        model=weights_at(args.model_path, "m"),
        head=weights_at(args.speculative_draft_model_path, "h"),
    ).write(file)
    found = served(args, rule_config=str(file))
    assert (found.config.rule, found.config.policy) == ("strict", "dcs")
    assert "policy is dcs, the certificate's thrift" in found.warning


def test_the_log_says_what_serves(args, path, caplog):
    caplog.set_level(logging.INFO)
    algorithm.settle(args, load_config(json.dumps({"rule_config": path})))
    assert "margin:0.3 (margin:kappa=0.3)" in caplog.text
    assert "model compared by digest" in caplog.text
    assert algorithm.active_config().rule == "margin:0.3"
    caplog.clear()
    algorithm.settle(args, load_config(json.dumps({"rule_config": path, "policy": "static"})))
    assert "strict (margin:kappa=1.0)" in caplog.text
    assert [record.levelname for record in caplog.records if "strict serves" in record.message] == [
        "WARNING"
    ]


@pytest.mark.parametrize(
    ("settings", "field", "word"),
    [
        ({"rule": "strict"}, "rule_config", "rule is set as well"),
        ({"rule": "safe"}, "rule_config", "rule is set as well"),
        ({"min_kappa": 0.4}, "min_kappa", "must be at most the kappa of the server's own rule"),
    ],
)
def test_what_contradicts_it_is_refused(path, settings, field, word):
    with pytest.raises(ConfigError, match=word) as caught:
        load_config(json.dumps({"rule_config": path, **settings}))
    assert caught.value.field == f"ADAPTIVESPEC_CONFIG.{field}"


def test_a_file_that_is_no_certificate_ends_the_start(tmp_path):
    with pytest.raises(ConfigError, match="cannot read") as caught:
        load_config(json.dumps({"rule_config": str(tmp_path / "none.json")}))
    assert caught.value.field == "ADAPTIVESPEC_CONFIG.rule_config"


def test_it_is_among_the_settings_that_are_logged(path):
    assert dict(describe(load_config(json.dumps({"rule_config": path}))))["rule_config"] == path


@pytest.mark.parametrize(
    ("top_k", "temperature", "custom", "kappa"),
    [
        (1, 1.0, None, 0.3),  # greedy, as SGLang has it
        (-1, 0.7, None, 1.0),
        (-1, 0.7, {"adaptivespec": {"kappa": 0.5}}, 0.5),
        (-1, 0.7, {"other": 1}, 1.0),
    ],
)
def test_requests_at_another_temperature_are_strict_unless_they_bring_a_rule(
    args, path, top_k, temperature, custom, kappa
):
    found = served(args, rule_config=path)
    vocabulary: Any = SimpleNamespace(tokenizer=None)
    requests = Requests(found.config, vocabulary, "dcs", found.temperature)
    params = SimpleNamespace(top_k=top_k, temperature=temperature, custom_params=custom)
    assert requests._options(SimpleNamespace(sampling_params=params)).kappa == kappa
    assert brings_rule(custom) is (kappa == 0.5)


def test_weights_without_files_go_by_name():
    assert weights_at("org/name", "org/name") == Weights(name="org/name")
