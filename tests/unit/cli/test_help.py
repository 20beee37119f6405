"""What the command line says about itself, and that it says so quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adaptivespec import __version__

PROBE = """
import sys
from adaptivespec.cli.main import app
try:
    app(sys.argv[1:], prog_name="adaptivespec")
finally:
    heavy = {"torch", "numpy", "prompt_toolkit", "tokenizers", "fastapi", "openai", "httpx2"}
    print("HEAVY", sorted(heavy & set(sys.modules)))
"""


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"adaptivespec {__version__}\n"


def test_without_arguments_help_is_shown(run):
    result = run()
    assert "generate" in result.output
    assert "chat" in result.output


@pytest.mark.parametrize(
    "command", [[], ["generate"], ["chat"], ["replay"], ["serve"], ["conform"]], ids="".join
)
def test_help_loads_nothing_heavy(command):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("HEAVY []\n")


@pytest.mark.parametrize(
    "words",
    [
        ("Examples", "--rule margin --kappa 0.2 --policy dcs"),
        ("strict (lossless)", "margin", "paper", "safe"),
        ("auto, none, chain, static, eagle2, dcs",),
        ("auto|bfloat16|float32",),
        ("ADAPTIVESPEC_MAX_TOKENS", "ADAPTIVESPEC_CACHE"),
        ("Model", "Prompt", "Speculation", "Sampling", "Output"),
        ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
    ],
)
def test_help_of_generate_teaches(run, words):
    text = " ".join(run("generate", "--help").stdout.replace("│", " ").split())
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    "command",
    [
        "generate",
        "chat",
        "models",
        "rules",
        "policies",
        "profile",
        "replay",
        "train-head",
        "train-judge",
    ],
)
def test_every_command_has_help_with_examples(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert f"adaptivespec {command}" in result.stdout


@pytest.mark.parametrize("arguments", [["generate", "--nope"], ["nope"], ["models", "nope"]])
def test_wrong_usage_exits_2(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
