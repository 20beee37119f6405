"""`adaptivespec serve`: its options, and the process from its first line to its last."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from typer.testing import CliRunner

from adaptivespec.calibrate.identity import Weights
from adaptivespec.cli import serve as command
from adaptivespec.cli.decoding import SpeculationOptions
from adaptivespec.cli.main import app
from adaptivespec.cli.options import ModelOptions
from adaptivespec.cli.serve_options import AdaptToLoad, ServeOptions
from adaptivespec.core.errors import ConfigError, FallbackWarning
from adaptivespec.verify import make_rule
from fakes.certificates import certificate
from fakes.serving import MODEL, after, counting

WIDE = "0.0.0.0"  # noqa: S104
PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
from fakes.serving import counting
from adaptivespec.cli import main, options
options.create_engine = lambda **arguments: counting(max_model_len=100_000)
main.main()
"""


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and what it said until it was ready."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("ADAPTIVESPEC_")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**own, "COLUMNS": "200", **environment},
    )
    said = ""
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "the page:" in line:
                break
        yield process, said
    finally:
        process.kill()
        process.communicate()


def address(said: str) -> str:
    found = re.search(r"at (http://\S+)/v1", said)
    assert found, said
    return found[1]


def client_of(said: str, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=address(said) + "/v1", api_key=key, max_retries=0)


def test_it_serves_and_a_signal_lets_the_answers_under_way_end():
    arguments = ("--rule", "margin:0.4", "--policy", "chain:2")
    with running(*arguments, ADAPTIVESPEC_API_KEY="one two") as (process, said):
        assert f"serving {MODEL} at http://127.0.0.1:" in said
        assert "rule margin:kappa=0.4 (lossy)" in said
        assert f"the page: {address(said)}/" in said
        assert "warning" not in said
        assert "two" not in said
        with client_of(said, "three") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with client_of(said, "two") as client:
            model = client.models.retrieve(MODEL)
            assert (model.rule, model.policy) == ("margin:kappa=0.4", "chain:num_steps=2")
            stream = client.completions.create(
                model=MODEL, prompt="a", max_tokens=800, temperature=0, stream=True,
                extra_body={"rule": "strict"},
            )  # fmt: skip
            first = next(iter(stream))
            process.send_signal(signal.SIGTERM)
            chunks = [first, *stream]
        assert "".join(chunk.choices[0].text for chunk in chunks) == after("a", 800)
        assert chunks[-1].choices[0].finish_reason == "length"
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()


def test_what_takes_longer_is_cut_off_and_told_so():
    with running("--drain-timeout", "0.1") as (process, said), client_of(said) as client:
        stream = client.completions.create(
            model=MODEL, prompt="a", max_tokens=90_000, temperature=0, stream=True
        )
        assert next(iter(stream))
        process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        assert process.wait(30) == 0
        rest = process.stderr.read()
        assert "Traceback" not in rest
        assert "1 answers under way" in rest


def test_a_second_signal_ends_it_at_once():
    with running("--drain-timeout", "600") as (process, said), client_of(said) as client:
        stream = client.completions.create(
            model=MODEL, prompt="a", max_tokens=90_000, temperature=0, stream=True
        )
        assert next(iter(stream))
        process.send_signal(signal.SIGINT)
        assert "under way" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in process.stderr.read()
        stream.close()


@pytest.mark.parametrize(
    ("options", "quiet", "words"),
    [
        ({"host": WIDE}, False, "anybody may use this server"),
        ({"host": WIDE}, True, "anybody may use this server"),
        ({"host": "::"}, False, "anybody may use this server"),
        ({"host": WIDE, "api_key": ["k"]}, False, "can be reached from other machines"),
        ({"host": "127.0.0.1"}, False, "serving counter at http://127.0.0.1:80/v1"),
        ({"host": "::1"}, False, "serving counter at http://[::1]:80/v1"),
        ({"host": "localhost", "api_key": ["k"]}, False, "serving counter at http://localhost"),
        ({"host": "127.0.0.1"}, True, ""),
    ],
)
def test_a_wider_address_is_warned_of(capsys, options, quiet, words):
    server, engine = ServeOptions(**options), counting()
    settings = command.settings_of(server, SpeculationOptions(), engine)
    command.announce(server, settings, 80, quiet)
    said = capsys.readouterr().err
    assert words in said
    assert ("warning: " in said) == ("anybody" in words)
    assert ("serving" in said) != quiet
    if not words:
        assert said == ""


def fails(*arguments: str) -> str:
    """What a command line that cannot work says, in one line."""
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def engine(monkeypatch):
    """No model is loaded: what is wrong is found before."""
    monkeypatch.setattr("adaptivespec.cli.options.create_engine", None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rule", "nope"), "unknown rule 'nope'"),
        (("--policy", "nope"), "unknown policy 'nope'"),
        (("--kappa", "0.3"), "has no kappa"),
        (("--max-num-seqs", "0"), "max_num_seqs: must be at least 1"),
        (("--max-queue", "-1"), "max_queue: must be at least 0"),
        (("--max-body-bytes", "0"), "max_body_bytes"),
        (("--drain-timeout", "-1"), "drain_timeout"),
        (("--drain-timeout", "nan"), "drain_timeout"),
        (("--temperature", "-1"), "temperature"),
        (("--api-key", " "), "api_key"),
        (("--api-key", "kä"), "api_key"),
        (("--port", "70000"), "port: must be in [0, 65535]"),
        (("--host", "no.such.host.invalid"), "host: "),
        (("--speculative-config", "{"), "speculative_config: is no JSON"),
        (("--speculative-config", "[]"), "must be a JSON object"),
        (("--speculative-config", '{"method": "ngram"}'), "method 'ngram'"),
        (("--speculative-config", '{"draft_tensor_parallel_size": 1}'),
         "'draft_tensor_parallel_size' is not honoured"),
        (("--speculative-config", '{"num_speculative_tokens": 0}'), "num_speculative_tokens"),
        (("--speculative-config", '{"num_speculative_tokens": 3}', "--policy", "dcs"),
         "--policy say the same thing"),
        (("--speculative-config", '{"model": "a"}', "--draft-model", "b"), "--draft-model say"),
        (("--rule-config", "/no/such/file"), "cannot read"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_before_a_model_is_loaded(engine, arguments, words):
    assert words in fails(*arguments)


def test_a_port_in_use_is_one_line_with_a_remedy(engine):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        line = fails("--port", str(taken.getsockname()[1]))
    assert "port: cannot serve at 127.0.0.1" in line
    assert "--port" in line


def test_a_missing_extra_is_one_line_with_a_remedy(engine, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "pip install 'adaptivespec[serve]'" in fails()


def test_vllms_spelling_of_head_and_policy():
    text = '{"method": "eagle3", "model": "head", "num_speculative_tokens": 4}'
    options = ServeOptions(speculative_config=text)
    model, speculation = options.with_vllm(ModelOptions(), SpeculationOptions())
    assert model.draft_model == "head"
    assert speculation.policy_choice() == ("chain:4", None)
    same = ServeOptions().with_vllm(ModelOptions(), SpeculationOptions())
    assert same == (ModelOptions(), SpeculationOptions())


@pytest.fixture
def certified(tmp_path) -> Any:
    def write(**changes: Any) -> SpeculationOptions:
        weights = {"model": Weights(name=MODEL), "head": Weights(name="unnamed"), **changes}
        certificate(**weights).write(tmp_path / "c.json")
        return SpeculationOptions(rule_config=tmp_path / "c.json")

    return write


def test_a_certificate_serves_at_its_temperature_alone(certified):
    settings = command.settings_of(ServeOptions(), certified(), counting())
    assert settings.temperature == 0  # that of the certificate
    assert settings.speculation(0).rule.label == "margin:kappa=0.3"
    assert settings.speculation(0).policy == "dcs"
    assert settings.speculation(0.7).rule == "strict"


def test_a_certificate_of_another_model_serves_nobody(certified):
    options = certified(model=Weights(name="another"))
    with pytest.warns(FallbackWarning, match="another"):
        settings = command.settings_of(ServeOptions(temperature=0.5), options, counting())
    assert settings.temperature == 0.5
    for temperature in (0, 0.5):
        assert make_rule(settings.speculation(temperature).rule).label == "strict"


def test_load_must_not_change_what_a_certificate_vouches_for(certified):
    ServeOptions().check_certificate(certified())
    with pytest.raises(ConfigError, match="lossless or off"):
        ServeOptions(adapt_to_load=AdaptToLoad.all).check_certificate(certified())
    ServeOptions(adapt_to_load=AdaptToLoad.all).check_certificate(SpeculationOptions())


def test_settings_follow_the_options():
    server = ServeOptions(served_model_name="name", api_key=["a"], host=WIDE,
                          max_body_bytes=9)  # fmt: skip
    settings = command.settings_of(server, SpeculationOptions(rule="safe"), counting())
    assert (settings.model, settings.api_keys, settings.loopback) == ("name", ("a",), False)
    assert (settings.max_body_bytes, settings.temperature) == (9, 1)
    assert settings.speculation(1).rule.label.startswith("margin:kappa=0.3,")
    assert command.settings_of(ServeOptions(), SpeculationOptions(), counting()).loopback


def test_bounds_are_checked_as_a_whole():
    ServeOptions().check()
    with pytest.raises(ConfigError):
        ServeOptions(max_num_seqs=0).check()


def test_help_shows_how_it_is_asked():
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in result.stdout
    body = re.search(r"-d '(\{.*?\})'", " ".join(result.stdout.split()))
    assert body is not None
    assert json.loads(body[1])["messages"][0]["role"] == "user"
    assert "openai.OpenAI(base_url=" in result.stdout
