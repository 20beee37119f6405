"""docs/sglang.md names what there is: settings, options, metrics, refusals."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from adaptivespec.integrations.sglang import metrics
from adaptivespec.integrations.sglang.config import PluginConfig
from adaptivespec.integrations.sglang.policies import make_batch_policy
from adaptivespec.integrations.sglang.seams import TESTED
from adaptivespec.integrations.sglang.statistics import RequestStatistics
from adaptivespec.policy import POLICIES
from adaptivespec.verify.margin import MarginOptions

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "src" / "adaptivespec" / "integrations" / "sglang"


@pytest.fixture(scope="module")
def guide():
    return (ROOT / "docs" / "sglang.md").read_text(encoding="utf-8")


def section(guide, title):
    return re.split(r"^## ", guide.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def rows(text):
    """The cells of every line of a section's tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(text):
    return set(re.findall(r"`([a-z_]+)`", text))


def test_every_setting_is_there_with_its_default(guide):
    table = {row[0].strip("`"): row[1] for row in rows(section(guide, "Settings"))[1:]}
    defaults = PluginConfig().model_dump(mode="json")
    assert table == {name: f"`{json.dumps(value)}`" for name, value in defaults.items()}


def test_every_option_of_a_request_is_there(guide):
    text = section(guide, "A request's own rule")
    # SGLang passes no list on, so a request gives think_ids within its rule.
    assert {"rule", *MarginOptions.model_fields} - {"think_ids"} <= names(text)


def test_every_figure_of_a_response_is_there(guide):
    summary = RequestStatistics(rule="strict", policy="dcs", lossless=True).summary(0)
    assert set(summary) <= names(section(guide, "Reading the results"))


def test_every_metric_is_there(guide):
    # Read from the source: prometheus_client comes with SGLang alone.
    source = (PLUGIN / "metrics.py").read_text(encoding="utf-8")
    counters = [name for name, _ in metrics._SUMMED.values()]
    counters += re.findall(r'= counter\(\s*"(\w+)"', source)
    gauges = re.findall(r'= gauge\(\s*"(\w+)"', source)
    assert len(counters) > len(metrics._SUMMED)
    assert gauges
    expected = {f"adaptivespec_{name}_total" for name in counters}
    expected |= {f"adaptivespec_{name}" for name in gauges}
    assert expected <= names(section(guide, "Reading the results"))


def test_every_policy_is_there_as_it_is(guide):
    text = section(guide, "Policies and triples")
    works = {row[0].strip("`").partition(":")[0] for row in rows(text)[1:]}
    refused = names(text.split("\n\n`medusa`")[1].split(".")[0] + "`medusa`")
    for name in POLICIES.names():
        if name in works:
            assert make_batch_policy(name).triples
        else:
            with pytest.raises(Exception, match="does not work inside SGLang"):
                make_batch_policy(name)
            assert name in refused | {"none", "eagle2"}


def test_every_refused_argument_is_there(guide):
    source = ast.parse((PLUGIN / "algorithm.py").read_text(encoding="utf-8"))
    refusing = next(node for node in source.body if getattr(node, "name", "") == "_refuse")
    flags = {
        flag
        for node in ast.walk(refusing)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for flag in re.findall(r"^--[a-z-]+[a-z]", node.value)
    }
    assert "--enable-pdmux" in flags
    text = section(guide, "Limits")
    missing = {flag for flag in flags if flag not in text}
    assert missing <= {"--attention-backend", "--speculative-draft-model-path"}


def test_the_releases_are_those_that_were_tested(guide):
    assert f"{TESTED[0]} to {TESTED[-1]}" in guide


def test_links_lead_somewhere(guide):
    titles = [re.sub(r"[^a-z0-9 ]", "", line[3:].lower()).replace(" ", "-")
              for line in guide.splitlines() if line.startswith("## ")]  # fmt: skip
    for target in re.findall(r"\]\(([^)]+)\)", guide):
        file, _, anchor = target.partition("#")
        assert not file or (ROOT / "docs" / file).is_file(), target
        assert file or anchor in titles, target
