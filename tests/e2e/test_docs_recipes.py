"""docs/recipes.md invents nothing: options exist, sizes are the code's, speeds the paper's."""

from __future__ import annotations

import json
import re
import shlex
from math import prod
from pathlib import Path

import pytest
import typer

from adaptivespec.cli.main import app
from adaptivespec.draft.eagle3_config import Eagle3Config
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.eval.arms import parse_arms
from adaptivespec.integrations.sglang.config import PluginConfig
from adaptivespec.policy import make_policy
from adaptivespec.verify import make_rule

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
PAIRS = {
    "meta-llama/Llama-3.1-8B-Instruct": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",
    "Qwen/Qwen3-8B": "AngelSlim/Qwen3-8B_eagle3",
}
#: Of `python -m sglang.launch_server`, 0.5.23; held to the real one where that is installed.
SGLANG_FLAGS = {
    "--model-path",
    "--dtype",
    "--context-length",
    "--speculative-algorithm",
    "--speculative-draft-model-path",
}
BACKBONE = {
    "hidden_size": 4096,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 128,
    "rope_theta": 1e4,
    "rope_scaling": None,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
}
SIZES = [
    ("llama", {"vocab_size": 128256, "intermediate_size": 14336, "num_layers": 32}),
    ("qwen3", {"vocab_size": 151936, "intermediate_size": 12288, "num_layers": 36}),
]


def commands():
    """Every command line of the page, as words."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


def environment(words):
    """Leading NAME=VALUE words, and the rest."""
    count = next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def of_program(name):
    return [words for words in commands() if environment(words)[1][0] == name]


def parsed(words):
    """The values of our own command line's options; what it does not know is refused."""
    command, words = typer.main.get_command(app), words[1:]
    context = command.make_context("adaptivespec", list(words))
    while hasattr(command, "resolve_command"):  # a group
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context.params


@pytest.mark.parametrize("words", of_program("adaptivespec"), ids=" ".join)
def test_our_own_commands_are_parsed(words, monkeypatch):
    monkeypatch.delenv("ADAPTIVESPEC_CONFIG", raising=False)
    values = parsed(words)
    if values.get("rule"):
        make_rule(values["rule"], kappa=values.get("kappa"))
    if values.get("policy", "auto") != "auto":
        make_policy(values["policy"])
    if values.get("arms"):
        assert len(parse_arms(values["arms"])) == 5
    for arm in values.get("server_arm") or ():
        json.loads(arm.partition("=")[2])


def test_an_invented_option_is_found():
    with pytest.raises(Exception, match="No such option"):
        parsed(["adaptivespec", "serve", "some/model", "--speculate-harder"])


def test_sglang_is_started_with_options_that_it_has():
    starts = of_program("python")
    assert len(starts) == len(PAIRS)
    for words in starts:
        variables, words = environment(words)
        PluginConfig.model_validate_json(variables["ADAPTIVESPEC_CONFIG"])
        assert {word for word in words if word.startswith("--")} <= SGLANG_FLAGS


def test_sglang_itself_knows_them():
    arguments = pytest.importorskip("sglang.srt.server_args", reason="needs SGLang")
    import argparse

    parser = argparse.ArgumentParser()
    arguments.ServerArgs.add_cli_args(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    assert known >= SGLANG_FLAGS


def test_the_gpu_check_is_there():
    for words in of_program("./scripts/gpu_check.sh"):
        assert (ROOT / words[0]).is_file()
        assert PAIRS[words[1]] == words[2]


def test_every_target_goes_with_its_own_head():
    for words in commands():
        named = set(words) & {*PAIRS, *PAIRS.values()}
        assert not named or any(named <= {target, head} for target, head in PAIRS.items()), words
    for target, head in PAIRS.items():
        assert f"| `{target}` | `{head}` |" in PAGE


def test_each_recipe_says_that_it_was_not_run():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    recipes = [s for s in sections if "launch_server" in s and "generate" in s]
    assert len(recipes) == len(PAIRS)
    assert all("*Not run here.*" in recipe for recipe in recipes)


@pytest.mark.parametrize(("kind", "sizes"), SIZES, ids=["llama", "qwen3"])
def test_the_sizes_are_those_that_the_code_computes(kind, sizes):
    model = ModelConfig(
        **BACKBONE,
        **sizes,
        tie_word_embeddings=False,
        eos_token_ids=(0,),
        bos_token_id=None,
        model_type=kind,
        head_norms=kind == "qwen3",
    )
    head = Eagle3Config(
        **BACKBONE,
        vocab_size=sizes["vocab_size"],
        intermediate_size=sizes["intermediate_size"],
        draft_vocab_size=32000,
    )
    numbers = sum(map(prod, model.tensor_shapes().values()))
    own = {k: v for k, v in head.shapes().items() if k not in ("embed_tokens.weight", "d2t", "t2d")}
    drafter = sum(map(prod, own.values()))
    row, draft_row = 2 * sizes["num_layers"] * 8 * 128 * 2, 2 * 8 * 128 * 2
    cache = (row + draft_row) * 8192
    parts = [2 * numbers, 2 * drafter, cache]
    for text in (
        f"| {numbers:,} | {gb(parts[0])} |",
        f"| {drafter:,} | {gb(parts[1])} |",
        f"| {row:,} bytes | {draft_row:,} bytes | {gb(cache)} |",
    ):
        assert text in PAGE
    shown = [gb(part).removesuffix(" GB") for part in parts]
    total = sum(float(part) for part in shown)
    assert f"{' + '.join(shown)} = {total:.2f} GB" in re.sub(r"\s+", " ", PAGE)


def gb(size):
    return f"{size / 1e9:.2f} GB"


def test_the_papers_figures_are_those_of_the_other_page():
    other = (ROOT / "docs" / "sglang.md").read_text(encoding="utf-8")
    for name in ("static tree, margin 0.2", "dynamic tree, strict", "dynamic tree, margin 0.2"):
        row = next(line for line in other.splitlines() if line.startswith(f"| {name} |"))
        assert row in PAGE
