"""Certificates: read as they were written, refused where they were changed or support nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptivespec.calibrate.certificate import Certificate, CertificateError, InForce, margin_rule
from adaptivespec.calibrate.fit import Budget
from adaptivespec.calibrate.identity import Weights, digest_of, weights_at
from adaptivespec.calibrate.rule_config import rule_from
from adaptivespec.core.errors import AdaptiveSpecError, ConfigError, FallbackWarning
from fakes.certificates import HEAD, MODEL, certificate

NOW = InForce(MODEL, HEAD, "dcs")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "certificate.json"


@pytest.mark.parametrize(
    "made",
    [
        certificate(),
        certificate((2,), (0.9,)),
        certificate((0, 0), (0.9, 0.0), base="margin:protect_digits=true"),
        certificate((0,), (0.5,), base="safe", budget=Budget("disagreement", 0.05, 0.9)),
        certificate((0, 3), (0.5, 0.2), budget=Budget("drop", 0.05), head=None),
    ],
)
def test_what_is_written_is_read(made, path):
    made.write(path)
    assert Certificate.read(path) == made
    assert not list(path.parent.glob("*.partial"))


def test_the_kappa_is_the_last_that_is_certified():
    made = certificate()
    assert (made.kappa, made.rule, made.lossless) == (0.3, "margin:0.3", False)
    nothing = certificate((2,), (0.9,))
    assert (nothing.kappa, nothing.rule, nothing.lossless) == (1.0, "strict", True)


def changed(path: Path, change) -> CertificateError:
    certificate().write(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CertificateError) as caught:
        Certificate.read(path)
    assert caught.value.field == "rule_config"
    assert "calibrate" in str(caught.value.remedy)
    return caught.value


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda c: c.update(kappa=0.1), "kappa: its tests certify 0.3, not 0.1"),
        (lambda c: c.update(kappa=0.1, rule="margin:0.1"), "kappa"),
        (lambda c: c.update(rule="margin:0.2"), "rule: it is not 'margin' at kappa 0.3"),
        (lambda c: c.update(rule="paper"), "rule"),
        (lambda c: c.update(base="fly"), "rule"),
        (lambda c: c.update(max_loss=0.5), "checksum"),
        (lambda c: c.update(confidence=0.99), "tests.0.certified: its p-value is 0.0495"),
        (lambda c: c.update(n=29900), "tests.2.loss"),
        (lambda c: c["tests"][2].update(certified=True), "tests.2.certified"),
        (lambda c: c["tests"][2].update(harmed=0), "tests.2.loss"),
        (lambda c: c["tests"][1].update(kappa=0.05), "tests.2.kappa"),
        (lambda c: c["tests"].insert(0, c["tests"][2]), "tests.1"),
        (lambda c: c["tests"][0].update(harmed=300, loss=300 / 299), "tests.0.loss"),
        (lambda c: c["tests"][0].update(helped=300), "tests.0.helped: there are 299 prompts"),
        (lambda c: c["model"].update(name="other"), "checksum"),
        (lambda c: c.update(policy="static"), "checksum"),
        (lambda c: c.pop("checksum"), "checksum"),
        (lambda c: c.pop("policy"), "policy: Field required"),
        (lambda c: c.update(format=2), "format"),
        (lambda c: c.update(n="299"), "n: Input should be a valid integer"),
        (lambda c: c.update(extra=1), "extra"),
        (lambda c: c["head"].update(sha=1), "head.sha"),
    ],
)
def test_a_file_that_was_changed_is_refused_by_name(path, change, word):
    assert word in str(changed(path, change))


@pytest.mark.parametrize("text", [None, "", "[]", "{", "\x00\xff"])
def test_what_is_no_certificate_is_refused(path, text):
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(CertificateError) as caught:
        Certificate.read(path)
    assert (caught.value.field, str(path) in str(caught.value)) == ("rule_config", True)


@pytest.mark.parametrize(
    ("now", "fields"),
    [
        (NOW, []),
        (NOW._replace(policy=None, temperature=None), []),
        (NOW._replace(model=Weights(name="FAKE")), []),
        (NOW._replace(model=Weights(name="fake", digest="ab")), []),
        (NOW._replace(model=Weights(name="other")), ["model"]),
        (NOW._replace(head=Weights(name="other")), ["head"]),
        (NOW._replace(head=None), ["head"]),
        (NOW._replace(policy="dcs:alpha=0.5"), ["policy"]),
        (NOW._replace(temperature=0.7), ["temperature"]),
        (InForce(HEAD, MODEL, "none", 1.0), ["model", "head", "policy", "temperature"]),
    ],
)
def test_every_difference_is_named(now, fields):
    assert [mismatch.field for mismatch in certificate().matches(now)] == fields


def test_digests_go_before_names():
    made = certificate(model=Weights(name="a", digest="1"))
    assert made.matches(NOW._replace(model=Weights(name="b", digest="1"))) == []
    assert made.matches(NOW._replace(model=Weights(name="a", digest="2")))


def test_where_it_holds_its_rule_and_policy_serve():
    for policy in ("dcs", None):
        ruling = rule_from(certificate(), NOW._replace(policy=policy))
        assert (ruling.rule, ruling.policy, ruling.warning) == ("margin:0.3", "dcs", "")


def test_where_it_does_not_strict_serves_and_a_warning_says_why_and_what_to_do():
    now = NOW._replace(policy="static", model=Weights(name="other"), words=("./m",))
    with pytest.warns(FallbackWarning) as caught:
        ruling = rule_from(certificate(), now, "c.json")
    assert (ruling.rule, ruling.policy) == ("strict", "static")
    (message,) = [str(warning.message) for warning in caught]
    assert message == ruling.warning
    for words in ("c.json", "model is other, the certificate's fake", "policy is static, the cert",
                  "adaptivespec calibrate ./m --task json --policy static --loss harm "
                  "--max-drop 1% --confidence 95%"):  # fmt: skip
        assert words in message


def test_of_a_temperature_alone_the_remedy_is_the_temperature():
    ruling = rule_from(certificate(), NOW._replace(temperature=0.7), warn=False)
    assert ruling.warning.endswith("Use temperature 0")


@pytest.mark.parametrize(
    ("now", "remedy"),
    [
        (
            NOW._replace(head=None, policy="none"),
            "Give the draft head with --draft-model: fake-head",
        ),
        (NOW._replace(policy="none"), "Use policy dcs"),
    ],
)
def test_where_nothing_drafts_the_remedy_is_not_to_calibrate(now, remedy):
    assert rule_from(certificate(), now, warn=False).warning.endswith(remedy)


def test_a_certificate_of_strict_holds_anywhere():
    nothing = certificate((2,), (0.9,))
    ruling = rule_from(nothing, InForce(HEAD, None, "none", 1.0))
    assert (ruling.rule, ruling.policy, ruling.mismatches) == ("strict", "none", ())


@pytest.mark.parametrize(
    ("base", "kappa", "rule"),
    [
        ("margin", 0.3, "margin:0.3"),
        ("margin", 1.0, "strict"),
        ("margin:protect_digits=true", 0.05, "margin:kappa=0.05,protect_digits=true"),
    ],
)
def test_spellings_of_rules(base, kappa, rule):
    assert margin_rule(base, kappa) == rule


@pytest.mark.parametrize("base", ["margin:0.3", "margin:kappa=0.3", "strict", "fly", "margin:x=1"])
def test_what_is_no_margin_rule_is_refused(base):
    with pytest.raises(ConfigError):
        margin_rule(base, 0.5)


def test_a_digest_is_of_config_and_weights(tmp_path):
    def made(name: str, config: str = "{}", weights: bytes = b"w" * 1000, other: str = "") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(config)
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "pytorch_model.bin").write_bytes(other.encode())
        (folder / "README.md").write_text(other)
        return folder

    first = digest_of(made("a"))
    assert first == digest_of(made("b", other="of no account"))
    assert first != digest_of(made("c", config='{"a": 1}'))
    assert first != digest_of(made("d", weights=b"w" * 999 + b"x"))
    assert weights_at(tmp_path / "a", "name") == Weights(name="name", digest=first)
    assert weights_at(tmp_path / "nowhere", "name") == Weights(name="name", digest=None)
    assert weights_at(None, "name").digest is None
    assert digest_of(tmp_path) is None


def test_a_certificate_error_is_one_of_ours():
    assert issubclass(CertificateError, AdaptiveSpecError)
    assert issubclass(CertificateError, ValueError)
