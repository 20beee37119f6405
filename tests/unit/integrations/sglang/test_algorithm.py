"""A server's arguments: filled in for the policy's trees, or refused by name."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang import algorithm
from adaptivespec.integrations.sglang.config import PluginConfig


def arguments(**changes: Any) -> SimpleNamespace:
    """SGLang's arguments as far as they are read, of a plain CUDA server."""
    plain = {
        "device": "cuda",
        "speculative_num_steps": None,
        "speculative_eagle_topk": None,
        "speculative_num_draft_tokens": None,
        "speculative_draft_model_path": "head",
        "speculative_adaptive_config": None,
        "speculative_accept_threshold_single": 1.0,
        "speculative_accept_threshold_acc": 1.0,
        "max_running_requests": None,
        "attention_backend": "fa3",
        "decode_attention_backend": None,
        "page_size": 1,
        "enable_dp_attention": False,
        "pp_size": 1,
    }
    return SimpleNamespace(**{**plain, **changes})


def flags(steps: int, topk: int, tokens: int | None) -> dict[str, int | None]:
    return {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


def settled(policy: str = "dcs", **changes: Any) -> dict[str, Any]:
    return algorithm.settle(arguments(**changes), PluginConfig(policy=policy))


def test_slots_are_reserved_for_the_largest_tree() -> None:
    fields = settled("dcs")
    assert fields == {**flags(7, 4, 8), "enable_mixed_chunk": False, "max_running_requests": 48}


def test_a_fixed_tree_is_the_largest_and_keeps_for_large_batches() -> None:
    assert settled("static:5,4,16").items() >= flags(5, 4, 16).items()
    policy = algorithm.server_policy(PluginConfig(policy="static:5,4,16"), arguments())
    assert policy.choose([str(i) for i in range(200)]) == (5, 4, 16)


def test_a_policy_that_adapts_has_one_tree_for_large_batches() -> None:
    config = PluginConfig(policy="dcs", max_batch=4, large_batch=(1, 2, 3))
    policy = algorithm.server_policy(config, arguments())
    assert policy.choose([str(i) for i in range(5)], [0.9] * 5) == (1, 2, 3)
    assert policy.choose(["0"], [0.9]) != (1, 2, 3)


@pytest.mark.parametrize(
    ("given", "triple"), [((3, 4, 8), (3, 4, 8)), ((6, 1, None), (6, 1, 7)), ((6, 1, 3), (6, 1, 7))]
)
def test_static_alone_takes_sglangs_own_flags(
    given: tuple[int, int, int | None], triple: tuple[int, int, int]
) -> None:
    assert settled("static", **flags(*given)).items() >= flags(*triple).items()


def test_replaced_flags_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settled("dcs", **flags(3, 4, 4))
        assert not caplog.records  # one of the policy's own
        settled("dcs", **flags(5, 4, 16))
    assert "are replaced by the triples of policy dcs" in caplog.text


def test_every_setting_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        settled("dcs")
    for name in PluginConfig.model_fields:
        assert name in caplog.text
    assert "(3, 4, 4) (4, 4, 5)" in caplog.text


def test_the_users_limit_on_requests_stays() -> None:
    assert "max_running_requests" not in settled(max_running_requests=7)


def test_overlap_is_off_on_a_cpu_unless_triton_is_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "disable_overlap_schedule" not in settled()
    assert settled(device="cpu")["disable_overlap_schedule"] is True
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "disable_overlap_schedule" not in settled(device="cpu")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"enable_dp_attention": True}, "--enable-dp-attention"),
    ({"attn_dp_size": 2}, "--enable-dp-attention"),
    ({"pp_size": 2}, "--pp-size"),
    ({"enable_multi_layer_eagle": True}, "--enable-multi-layer-eagle"),
    ({"enable_two_batch_overlap": True}, "--enable-two-batch-overlap"),
    ({"enable_pdmux": True}, "--enable-pdmux"),
    ({"speculative_use_rejection_sampling": True}, "--speculative-use-rejection-sampling"),
    ({"speculative_adaptive": True}, "--speculative-adaptive"),
    ({"enable_custom_logit_processor": True}, "--enable-custom-logit-processor"),
    ({"enable_watermark": True}, "--enable-watermark"),
    ({"speculative_accept_threshold_acc": 0.9}, "--speculative-accept-threshold-single/-acc"),
    ({"speculative_draft_model_path": None}, "--speculative-draft-model-path"),
    ({"page_size": 16, "attention_backend": "flashmla"}, "--page-size"),
    ({"attention_backend": "trtllm_mha"}, "--attention-backend"),
    ({"decode_attention_backend": "trtllm_mha"}, "--attention-backend"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED, ids=[field for _, field in REFUSED])
def test_what_cannot_work_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        settled("dcs", **changes)
    assert error.value.field == field
    assert error.value.remedy


@pytest.mark.parametrize("changes", [{"page_size": 16}, {"page_size": 16, "attention_backend": ""}])
def test_chains_and_paged_backends_may_have_large_pages(changes: dict[str, Any]) -> None:
    assert settled("chain:5", **changes).items() >= flags(5, 1, 6).items()
    assert settled("dcs", page_size=16, attention_backend="triton")


def test_the_flag_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(algorithm.CONFIG_VARIABLE, '{"policy": "chain:2"}')
    assert algorithm.read_config(arguments()).policy == "chain:2"
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"policy": "chain:3"}), encoding="utf-8")
    view = arguments(speculative_adaptive_config=str(file))
    assert algorithm.read_config(view).policy == "chain:3"
    monkeypatch.delenv(algorithm.CONFIG_VARIABLE)
    assert algorithm.read_config(arguments()) == PluginConfig()


def test_a_bad_setting_names_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(algorithm.CONFIG_VARIABLE, '{"polcy": "dcs"}')
    with pytest.raises(ConfigError, match=r"ADAPTIVESPEC_CONFIG\.polcy") as error:
        algorithm.read_config(arguments())
    assert "policy" in str(error.value)
