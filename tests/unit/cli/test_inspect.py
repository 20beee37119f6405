"""`adaptivespec inspect` and `convert-head` over synthetic checkpoints."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from adaptivespec.cli import convert_head, inspect
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.heads import Head
from adaptivespec.draft.proposal import Proposal, read_proposal
from adaptivespec.engine.weights import hub
from fakes import head_dialects, tiny

app = typer.Typer()
app.command("inspect", epilog=inspect.EPILOG)(inspect.inspect_checkpoint)
app.command("convert-head", epilog=convert_head.EPILOG)(convert_head.convert_head)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def report(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    result = run("inspect", *arguments, "--json")
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def target(path: Path, num_layers: int = 8, **changes: Any) -> Path:
    """The tiny target as a model directory without a tokenizer."""
    config = replace(tiny.CONFIG, num_layers=num_layers, **changes)
    data = asdict(config) | {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "eos_token_id": list(config.eos_token_ids),
    }
    path.mkdir()
    (path / "config.json").write_text(json.dumps(data))
    save_file(tiny.weights(config), path / "model.safetensors")
    return path


@pytest.mark.parametrize("name", list(head_dialects.WHOLE))
def test_a_head_is_told_in_json(name: str, tmp_path: Path) -> None:
    path = head_dialects.WHOLE[name](tmp_path / name)
    found = report(path, "--allow-pickles")
    assert found["kind"] == "head"
    assert found["dialect"] == Head.open(path, allow_pickles=True).dialect.name
    assert (found["draft_vocab_size"], found["vocab_size"]) == (23, 61)
    assert found["missing"] == found["unexpected"] == found["problems"] == []
    own = name == "speculators"
    assert found["borrowed"] == ([] if own else ["embed_tokens.weight"])
    named = "org/tiny-llama" if name.startswith("speculators") else None
    assert found["target_wanted"] == {"name": named, "vocab_size": 61, "hidden_size": 32}
    assert found["backends"]["torch"] == "yes"
    assert found["backends"]["native"].startswith("no: ")


def test_a_head_is_told_in_words(tmp_path: Path) -> None:
    path = head_dialects.speculators_flags(tmp_path / "head")
    result = run("inspect", path)
    assert result.exit_code == 0, result.stderr
    for words in (
        "head: an EAGLE-3 head",
        "speculators (vLLM speculators)",
        "model.safetensors, F32, 18.1 k parameters",
        "hidden 32, intermediate 40, 4 heads of 16, 2 for keys and values",
        "23 of 61",
        "entering layers 1, 3, 6",
        "theta 500000, llama3 scaling",
        "norm_before_residual = true",
        "norm_before_fc = true",
        "embed_tokens.weight",
        "org/tiny-llama, 61 words, hidden 32",
        "3 tokens, verifier_accept_k 5, accept_tolerance 1.5",
        "--rule margin:0.22313",
        "--policy chain:3",
    ):
        assert words in result.stdout
    assert "norm_output" not in result.stdout
    assert "use_last_layernorm" not in result.stdout
    assert "no limit by rank" in result.stderr


def test_flags_that_are_off_are_told(tmp_path: Path) -> None:
    path = head_dialects.nvidia(tmp_path / "head")
    head_dialects.edit_config(path, eagle_config={"use_last_layernorm": False})
    result = run("inspect", path)
    assert result.exit_code == 1
    assert "use_last_layernorm = false" in result.stdout
    assert "norm.weight" in result.stdout


def test_whether_it_fits(tmp_path: Path) -> None:
    model = target(tmp_path / "tiny-llama")
    head = head_dialects.speculators(tmp_path / "head")
    found = report(head, "--model", model)["fit"]
    assert (found["fits"], found["mismatches"], found["taps"]) == (True, [], [1, 3, 6])
    assert found["notes"] == []
    usual = head_dialects.official(tmp_path / "official", pickled=False)
    assert report(usual, "--model", model)["fit"]["taps"] == [2, 4, 5]
    assert (
        "tiny-llama: yes, tapped where its layers 1, 3, 6 begin"
        in run("inspect", head, "--model", model).stdout
    )


def test_every_mismatch_is_listed(tmp_path: Path) -> None:
    sizes = {"vocab_size": 71, "hidden_size": 48, "max_position_embeddings": 256}
    model = target(tmp_path / "other", num_layers=5, **sizes)
    head = head_dialects.speculators(tmp_path / "head")
    found = report(head, "--model", model, code=1)["fit"]
    assert not found["fits"]
    assert [text.split(":")[0] for text in found["mismatches"][:2]] == ["vocab_size", "hidden_size"]
    assert "has layers 0 to 4" in found["mismatches"][2]
    assert "128 positions" in found["notes"][0]
    assert "made for org/tiny-llama" in found["notes"][1]
    result = run("inspect", head, "--model", model)
    assert result.exit_code == 1
    assert result.stderr.count("does not fit other") == 3


def test_what_is_missing_is_listed(tmp_path: Path) -> None:
    path = head_dialects.incomplete(tmp_path / "head")
    found = report(path, code=1)
    assert found["missing"] == ["midlayer.self_attn.k_proj.weight", "norm.weight"]
    assert found["unexpected"] == ["midlayer.self_attn.q_norm.weight"]
    assert "2 missing" in found["problems"][0]


def test_a_pickle_is_not_read_unasked(tmp_path: Path) -> None:
    path = head_dialects.official(tmp_path / "head")
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    found = report(path)
    assert found["pickled"]
    assert not found["tensors_read"]
    assert "missing" not in found
    assert "--allow-pickles" in run("inspect", path).stderr


def test_a_target(tmp_path: Path) -> None:
    found = report(target(tmp_path / "tiny-llama"))
    assert (found["kind"], found["family"], found["format"]) == ("target", "llama", "safetensors")
    assert (found["num_layers"], found["hidden_size"], found["vocab_size"]) == (8, 32, 61)
    assert found["backends"]["torch"] == "yes"
    assert "multiple of 32" in found["backends"]["native"]
    assert (found["tokenizer"], found["chat_template"]) == (None, False)
    assert found["parameters"] == sum(
        t.numel() for t in tiny.weights(replace(tiny.CONFIG, num_layers=8)).values()
    )
    text = run("inspect", tmp_path / "tiny-llama").stdout
    for words in ("a target", "llama", "128", "missing", "torch: yes"):
        assert words in text


def test_a_target_that_lacks_a_tensor(tmp_path: Path) -> None:
    path = target(tmp_path / "tiny-llama")
    weights = load_file(path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, path / "model.safetensors")
    assert "model.norm.weight" in report(path, code=1)["problems"][0]


def test_a_target_that_is_not_ours(tmp_path: Path) -> None:
    path = target(tmp_path / "other")
    head_dialects.edit_config(path, model_type="bloom", architectures=["BloomForCausalLM"])
    found = report(path)
    assert found["family"] == "bloom"
    assert "bloom" in found["backends"]["torch"]
    assert found["backends"]["transformers"] in ("yes", "once it is installed")
    head = head_dialects.sglang(tmp_path / "head")
    assert report(head, "--model", path)["fit"]["fits"]


@pytest.mark.parametrize("arguments", [["nowhere"], ["."]])
def test_neither_head_nor_target(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("inspect", *arguments)
    assert result.exit_code == 2
    assert "error: " in result.stderr


def test_a_target_does_not_fit_a_target(tmp_path: Path) -> None:
    path = target(tmp_path / "tiny-llama")
    result = run("inspect", path, "--model", path)
    assert result.exit_code == 2
    assert "--model" in result.stderr


def test_conversion(tmp_path: Path) -> None:
    start = head_dialects.official(tmp_path / "start")
    out = tmp_path / "out"
    assert run("convert-head", start, out, "--to", "sglang").exit_code == 2
    assert not out.exists()
    result = run("convert-head", start, out, "--to", "sglang", "--allow-pickles")
    assert result.exit_code == 0, result.stderr
    assert "embed_tokens.weight" in result.stderr
    assert Head.open(out).dialect.name == "sglang"
    again = run("convert-head", start, out, "--to", "sglang", "--allow-pickles")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    forced = ["--to", "nvidia", "--allow-pickles", "--force", "-q"]
    result = run("convert-head", start, out, *forced)
    assert (result.exit_code, result.stderr) == (0, "")
    assert Head.open(out).dialect.name == "nvidia"
    assert run("convert-head", out, out, "--to", "sglang", "--force").exit_code == 2


def test_a_pickled_head_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights come when they are allowed to, and the copy needs no leave."""
    head = head_dialects.official(tmp_path / "head")
    (head / "pytorch_model.bin").rename(tmp_path / "kept.bin")

    def snapshot(name: str, pickles: bool = False, **_: Any) -> Path:
        assert name == "authors/EAGLE3-tiny"
        if pickles:
            (tmp_path / "kept.bin").rename(head / "pytorch_model.bin")
        return head

    monkeypatch.setattr(hub, "snapshot", snapshot)
    out = tmp_path / "out"
    refused = run("convert-head", "authors/EAGLE3-tiny", out, "--to", "sglang")
    assert refused.exit_code == 2
    assert "--allow-pickles" in refused.stderr
    done = run("convert-head", "authors/EAGLE3-tiny", out, "--to", "sglang", "--allow-pickles")
    assert done.exit_code == 0, done.stderr
    assert Eagle3Checkpoint.load(out).config.draft_vocab_size == 23
    (head / "pytorch_model.bin").rename(tmp_path / "kept.bin")
    assert report("authors/EAGLE3-tiny", "--allow-pickles")["tensors_read"]


def test_usual_taps_need_no_words(tmp_path: Path) -> None:
    start = head_dialects.nvidia(tmp_path / "start")  # taps 2, 4, 5
    out = tmp_path / "out"
    for layers in ([], ["--layers", "30"]):
        result = run("convert-head", start, out, "--to", "official", *layers)
        assert result.exit_code == 2
        assert "[2, 4, 5]" in result.stderr
    assert run("convert-head", start, out, "--to", "official", "--layers", "8").exit_code == 0
    assert Eagle3Checkpoint.load(out).config.tap_layers is None


def test_a_speculators_config_is_written_as_asked(tmp_path: Path) -> None:
    start = head_dialects.sglang(tmp_path / "start")
    asked = ["--target", "org/model", "--kappa", "0.2", "--num-steps", "3"]
    result = run("convert-head", start, tmp_path / "a", "--to", "speculators", *asked)
    assert result.exit_code == 0, result.stderr
    data = json.loads((tmp_path / "a/config.json").read_text())
    assert data["speculators_config"]["verifier"]["name_or_path"] == "org/model"
    proposal = read_proposal(data, "x")
    assert proposal is not None
    assert (proposal.speculative_tokens, proposal.verifier_accept_k) == (3, 61)
    assert proposal.accept_tolerance == pytest.approx(1.6094, abs=1e-4)
    assert "--target" in run("convert-head", start, tmp_path / "b", "--to", "speculators").stderr
    result = run("convert-head", start, tmp_path / "c", "--to", "nvidia", "--kappa", "0.2")
    assert result.exit_code == 2


def test_a_proposal_is_kept_or_named(tmp_path: Path) -> None:
    start = head_dialects.speculators(tmp_path / "start")
    lossy = {"proposal_methods": [Proposal(4, 5, 1.5).to_dict()]}
    head_dialects.edit_config(start, speculators_config=lossy)
    assert run("convert-head", start, tmp_path / "a", "--to", "speculators").exit_code == 0
    data = json.loads((tmp_path / "a/config.json").read_text())
    assert read_proposal(data, "x") == Proposal(4, 5, 1.5)
    result = run("convert-head", start, tmp_path / "b", "--to", "sglang")
    assert result.exit_code == 0
    assert "margin:0.2231" in result.stderr


def test_flags_are_refused_by_name(tmp_path: Path) -> None:
    start = head_dialects.speculators_flags(tmp_path / "start")
    result = run("convert-head", start, tmp_path / "out", "--to", "nvidia")
    assert result.exit_code == 2
    assert "norm_before_residual = true" in result.stderr
    assert "norm_before_fc" not in result.stderr
