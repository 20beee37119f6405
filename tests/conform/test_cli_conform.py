"""`adaptivespec conform` as a user meets it: the report, exit codes, errors in one line."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from adaptivespec.cli.main import app
from fakes.conform_server import KEY, serving


@pytest.fixture
def conform(monkeypatch):
    """conform("--only", "text") -> what the command says."""
    for name in ("ADAPTIVESPEC_BASE_URL", "ADAPTIVESPEC_API_KEY", "ADAPTIVESPEC_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str):
        return CliRunner().invoke(app, ["conform", *arguments])

    return run


def server(url: str, *more: str) -> list[str]:
    return ["--base-url", url, "--api-key", KEY, "--tie", "0", "--timeout", "20", *more]


def test_a_server_that_passes(conform):
    with serving() as url:
        done = conform(*server(url, "--only", "text", "--only", "errors.tools"))
    assert done.exit_code == 0, done.output
    assert "text.utf8" in done.stdout
    assert "1 refused" in done.stdout
    assert "failed" not in done.stdout
    assert "errors.tools: refused" in done.stdout
    assert "text: 0 of 8" in done.stderr


def test_a_failure_says_what_was_sent_what_came_and_how_to_see_it_again(conform, tmp_path):
    with serving("overshoots") as url:
        done = conform(*server(url, "--only", "ending.max-tokens", "-o", str(tmp_path / "out")))
        report = json.loads((tmp_path / "out" / "report.json").read_text())
        (case,) = report["cases"]
        again = subprocess.run(
            ["bash", "-c", case["curl"]],
            capture_output=True,
            check=True,
            env={"API_KEY": KEY, "PATH": "/usr/bin:/bin"},
        )
    assert done.exit_code == 1
    for words in ("max_tokens=1", "1 tokens for max_tokens 1", "curl -sN"):
        assert words in done.stdout
    assert KEY not in done.output + json.dumps(report)
    assert case["verdict"] == "fail"
    assert case["seen"] == ["transformers#46993"]
    assert json.loads(again.stdout)["usage"]["completion_tokens"] == 1
    assert len(json.loads(again.stdout)["choices"][0]["logprobs"]["content"]) == 2
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert case["curl"] in markdown
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()  # noqa: S314 (our own)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert suite.find("testcase/failure") is not None


def test_raw_bodies_can_be_sent_again_too(conform, tmp_path):
    with serving("bad_json_500") as url:
        conform(*server(url, "--only", "errors.bad-json", "-o", str(tmp_path)))
        (case,) = json.loads((tmp_path / "report.json").read_text())["cases"]
        again = subprocess.run(
            ["bash", "-c", case["curl"]],
            capture_output=True,
            check=True,
            env={"API_KEY": KEY, "PATH": "/usr/bin:/bin"},
        )
    assert "no JSON" in again.stdout.decode()


def test_json_and_skip(conform):
    with serving() as url:
        done = conform(*server(url, "--only", "text", "--skip", "text.openai-client", "--json"))
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    names = [case["id"] for case in report["cases"]]
    assert "text.openai-client" not in names
    assert report["counts"]["pass"] == len(names)
    assert report["complete"] is True
    assert report["lossless"] is True


def test_the_list_needs_no_server(conform):
    done = conform("--list", "--only", "lifecycle")
    assert done.exit_code == 0
    assert "lifecycle.slow-reader" in done.stdout
    assert "ending." not in done.stdout
    cases = json.loads(conform("--list", "--json").stdout)
    assert {"id", "title", "finds", "seen", "needs"} == set(cases[0])


def test_help_teaches(conform):
    done = conform("--help")
    assert done.exit_code == 0
    for words in ("--base-url", "--only", "--tie", "adaptivespec conform --list"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--base-url http://HOST:PORT/v1"),
        (["--base-url", "localhost"], "http://HOST:PORT/v1"),
        (["--base-url", "http://x/v1", "--only", "nothing"], "--list shows the cases"),
        (["--base-url", "http://x/v1", "--timeout", "0"], "timeout"),
        (["--base-url", "http://x/v1", "--tie", "-1"], "tie"),
        (["--base-url", "http://no-such-host.invalid/v1"], "Is the server running"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy(conform, arguments, words):
    done = conform(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_server_there(conform):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    done = conform("--base-url", url)
    assert done.exit_code == 2
    assert "Is the server running" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--api-key", "wrong"], "--api-key"),
        (["--api-key", KEY, "--model", "other"], "It lists: hash"),
    ],
)
def test_a_server_that_cannot_be_asked(conform, arguments, words):
    with serving() as url:
        done = conform("--base-url", url, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_without_its_client_the_extra_is_named(conform, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    done = conform("--base-url", "http://127.0.0.1:1/v1")
    assert done.exit_code == 2
    assert "adaptivespec[conform]" in done.stderr


def test_ctrl_c_gives_the_report_so_far(tmp_path):
    with serving("half_blocks") as url:
        command = [str(Path(sys.executable).with_name("adaptivespec")), "conform"]
        arguments = server(url, "--only", "text.role-first", "--only", "lifecycle.half-request")
        process = subprocess.Popen(
            [*command, *arguments, "-o", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("lifecycle"):  # which hangs until its timeout
                break
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=15)
    assert process.returncode == 130
    assert "text.role-first" in stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["complete"] is False
    assert [case["id"] for case in report["cases"]] == ["text.role-first"]


def test_a_server_that_dies_ends_the_run_and_says_since_when(conform, tmp_path):
    with serving("dies_of_deep_json") as url:
        arguments = ("--only", "limits.deep-json", "--only", "limits.huge-n")
        done = conform(*server(url, *arguments, "-o", str(tmp_path)))
    assert done.exit_code == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert [case["verdict"] for case in report["cases"]] == ["fail", "error"]
    assert "limits.deep-json" in report["remark"]
