import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.config import (
    REQUEST_KEY,
    PluginConfig,
    describe,
    load_config,
    margin_options,
    request_options,
)
from adaptivespec.verify import PRESETS
from adaptivespec.verify.margin import MarginOptions, MarginRule

FIELD = "ADAPTIVESPEC_CONFIG"
STRICT = MarginOptions(kappa=1.0)
SAFE = MarginOptions(**MarginRule.presets["safe"])
COSTS = "here:verify=[[1,18],[64,20]],draft=0.6"

RULES = ["strict", "margin", "margin:0.35", "paper", "safe", "safe:max_regret=null"]
OPTIONS = {
    "kappa": 0.4,
    "protect_digits": True,
    "max_promotions_per_step": 2,
    "exact_between": True,
    "max_regret": 3.5,
    "regret_window": 64,
    "skip_tokens": 7,
    "think_only": True,
    "think_ids": (5, 6),
}


def refused(text: str | None, field: str = FIELD) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(text, field)
    return caught.value


def asking(**options: object) -> dict[str, object]:
    return {REQUEST_KEY: options}


def refused_request(custom_params: object, config: PluginConfig | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        request_options(custom_params, config or PluginConfig())
    return caught.value


# The server's settings


@pytest.mark.parametrize("text", [None, "", "  \n", "{}"])
def test_nothing_given_is_lossless_and_adaptive(text):
    config = load_config(text)
    assert config == PluginConfig()
    assert (config.rule, config.policy, config.signal) == ("strict", "dcs", "auto")
    assert margin_options(config) == STRICT


def test_every_setting_is_described():
    assert all(info.description for info in PluginConfig.model_fields.values())


def configs() -> st.SearchStrategy[PluginConfig]:
    return st.builds(
        PluginConfig,
        rule=st.sampled_from(RULES),
        policy=st.sampled_from(["dcs", "static", "static:5,4,16", "priced:mode=triple"]),
        signal=st.sampled_from(["auto", "exact", "lag1", "history"]),
        combine=st.sampled_from(["mean", "median", "min"]),
        max_batch=st.integers(1, 512),
        large_batch=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(2, 99)),
        hold=st.integers(1, 99),
        costs=st.sampled_from([None, COSTS]),
        attach=st.booleans(),
        trace=st.none() | st.text(min_size=1),
        seed=st.integers(0, 2**31 - 1),
        request_options=st.booleans(),
        min_kappa=st.floats(0, 0.2),
    )


@given(configs())
def test_settings_round_trip_as_inline_json(config):
    assert load_config(config.model_dump_json()) == config


@given(configs())
def test_settings_round_trip_through_a_file(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "server.json"
    path.write_text("\n" + config.model_dump_json(indent=2, exclude_defaults=True), "utf-8")
    assert load_config(str(path)) == config


def test_a_file_may_start_with_a_byte_order_mark_and_lie_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "server.json").write_text('{"rule": "safe"}', encoding="utf-8-sig")
    assert load_config("~/server.json").rule == "safe"


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ('{"polcy": "dcs"}', "polcy", ["unknown setting", "mean 'policy'?", "Legal: rule, policy"]),
        ('{"kappa": 0.3}', "kappa", ["unknown setting", '{"rule": "margin:kappa=..."}']),
        ('{"rule": "magin"}', "rule", ["mean 'margin'?", "Legal: strict, margin, paper, safe"]),
        ('{"rule": "fly"}', "rule", ["'fly'", "only the margin rule", "Legal: strict, margin"]),
        ('{"rule": "judge:x"}', "rule", ["'judge' does not run inside SGLang"]),
        ('{"rule": ""}', "rule", ["cannot read ''"]),
        ('{"rule": 3}', "rule", ["must be a valid string, got 3"]),
        ('{"rule": "strict:0.2"}', "rule_options", ["'strict' takes at most 0 options"]),
        ('{"rule": "margin:-1"}', "rule_options.kappa", ["got -1", "number in [0, inf)"]),
        ('{"rule": "margin:kapa=1"}', "rule_options.kapa", ["unknown option", "mean 'kappa'?"]),
        ('{"rule": "margin:kappa=NaN"}', "rule_options.kappa", ["finite number, got nan"]),
        ('{"rule": "margin:skip_tokens=3e9"}', "rule_options.skip_tokens", ["[0, 2147483647]"]),
        ('{"rule": "margin:think_ids=(-1,4)"}', "rule_options.think_ids", ["got -1"]),
        ('{"rule": "margin:think_ids=(4,4)"}', "rule_options", ["two different ids"]),
        ('{"policy": "dsc:d=1"}', "policy", ["unknown policy 'dsc'", "mean 'dcs'?", "static"]),
        ('{"policy": ""}', "policy", ["cannot read ''"]),
        ('{"signal": "lag2"}', "signal", ["got 'lag2'", "auto | exact | lag1 | history"]),
        ('{"combine": "max"}', "combine", ["got 'max'", "Legal: mean | median | min"]),
        ('{"max_batch": 0}', "max_batch", ["equal to 1, got 0", "Legal: integer in [1, inf)"]),
        ('{"max_batch": "16"}', "max_batch", ["must be a valid integer, got '16'"]),
        ('{"max_batch": true}', "max_batch", ["must be a valid integer, got True"]),
        ('{"large_batch": [2, 1]}', "large_batch", ["three integers, got [2, 1]", "[num_steps, "]),
        ('{"large_batch": [2, 1, 3.0]}', "large_batch", ["three integers, got [2, 1, 3.0]"]),
        ('{"large_batch": [2, 1, true]}', "large_batch", ["three integers"]),
        ('{"large_batch": "2,1,3"}', "large_batch", ["three integers, got '2,1,3'"]),
        ('{"hold": -2}', "hold", ["got -2", "integer in [1, inf)"]),
        ('{"costs": "here:draft=1"}', "costs", ["cannot read 'here:draft=1'", "milliseconds"]),
        ('{"costs": "no/such.json"}', "costs", ["cannot read no/such.json", "Give a JSON file"]),
        ('{"attach": 1}', "attach", ["must be a valid boolean, got 1", "Legal: true | false"]),
        ('{"trace": ""}', "trace", ["must have at least 1 character"]),
        ('{"seed": -1}', "seed", ["got -1", "[0, "]),
        ('{"seed": 2147483648}', "seed", ["got 2147483648"]),
        ('{"min_kappa": 1.5}', "min_kappa", ["got 1.5", "Legal: number in [0, 1]"]),
        ('{"min_kappa": 1e999}', "min_kappa", ["finite number, got inf"]),
        ('{"rule": "safe", "min_kappa": 0.4}', "min_kappa", ["server's own rule, 0.3, got 0.4"]),
        ('{"hold": 1, "hold": 1}', "hold", ["given twice"]),
    ],
)
def test_an_illegal_setting_is_named_with_what_is_legal(text, field, words):
    error = refused(text)
    assert error.field == f"{FIELD}.{field}"
    for word in words:
        assert word in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hold" 1}', ["is not valid JSON: ", "at line 1, column 9"]),
        ('{\n "hold": 1,\n}', ["at line 3, column 1"]),
        ('{"min_kappa": NaN}', ["holds NaN, which is no JSON"]),
        ('{"min_kappa": -Infinity}', ["holds -Infinity"]),
        ("no/such/server.json", ["cannot read no/such/server.json: No such file", "starts with {"]),
        ('"rule"', ['cannot read "rule": ', "starts with {"]),
        ("a\0b", ["cannot read a\0b: embedded null byte"]),
    ],
)
def test_unreadable_settings_are_an_error_of_the_source(text, words):
    error = refused(text)
    assert error.field == FIELD
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{\n"hold": 1', "server.json is not valid JSON: Expecting ',' delimiter at line 2, "),
        (b"", "server.json is not valid JSON: Expecting value at line 1, column 1"),
        (b"[1]", "must be a JSON object of settings, not a list"),
        (b"\xff\xfe", "server.json: 'utf-8' codec"),
    ],
)
def test_an_error_in_a_file_names_the_file_and_the_place(tmp_path, content, words):
    path = tmp_path / "server.json"
    path.write_bytes(content)
    assert words in str(refused(str(path)))


def test_a_folder_is_no_file(tmp_path):
    assert f"cannot read {tmp_path}: Is a directory" in str(refused(str(tmp_path)))


def test_the_source_is_named_as_the_caller_calls_it():
    assert refused('{"hold": 0}', "--flag").field == "--flag.hold"
    assert refused("{", "--flag").field == "--flag"


def test_a_profile_of_costs_is_refused_with_its_own_place(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text('{"name": "x", "verify": [], "draft": [[1, 1]]}')
    error = refused(json.dumps({"costs": str(path)}))
    assert error.field == f"{FIELD}.costs"
    assert "has no verify times" in str(error)


@given(st.text(max_size=40) | st.text(max_size=40).map(lambda text: "{" + text))
def test_no_text_makes_another_error(text):
    with contextlib.suppress(ConfigError):
        load_config(text)


@given(
    st.dictionaries(
        st.sampled_from(sorted(PluginConfig.model_fields)) | st.text(max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
        max_size=4,
    )
)
def test_no_object_makes_another_error(settings):
    with contextlib.suppress(ConfigError):
        load_config(json.dumps(settings))


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("strict", STRICT),
        ("margin", MarginOptions()),
        ("margin:0.35,protect_digits=true", MarginOptions(kappa=0.35, protect_digits=True)),
        ("margin:1", STRICT),
        ("paper", MarginOptions(kappa=0.2)),
        ("safe", SAFE),
        ("safe:0.5", SAFE.model_copy(update={"kappa": 0.5})),
        ("margin:think_ids=(5,6)", MarginOptions(think_ids=(5, 6))),
    ],
)
def test_the_server_rule(rule, options):
    assert margin_options(PluginConfig(rule=rule)) == options


def test_every_preset_of_the_margin_rule_is_a_server_rule():
    for name in PRESETS:
        assert margin_options(PluginConfig(rule=name)).kappa == MarginRule.presets[name]["kappa"]


def test_describe_lists_every_setting_in_order_as_a_user_would_write_it():
    lines = dict(describe(PluginConfig(rule="safe", trace="rounds.jsonl", attach=True)))
    assert list(lines) == list(PluginConfig.model_fields)
    assert lines["rule"] == (
        "safe (margin:kappa=0.3,max_promotions_per_step=1,exact_between=true,max_regret=4.0)"
    )
    assert lines["trace"] == "rounds.jsonl"
    assert (lines["attach"], lines["costs"], lines["large_batch"]) == ("true", "null", "[2, 1, 3]")
    assert dict(describe(PluginConfig()))["rule"] == "strict (margin:kappa=1.0)"


@given(configs())
def test_a_described_value_reads_back(config):
    for name, value in describe(config):
        given = getattr(config, name)
        if name == "rule":
            assert value.split(" (")[0] == given
        elif isinstance(given, str):
            assert value == given
        else:
            assert json.loads(value) == (list(given) if isinstance(given, tuple) else given)


# What a request may ask


@pytest.mark.parametrize("params", [None, {}, {"other": [1]}, {REQUEST_KEY: None}, asking()])
def test_a_request_that_asks_nothing_gets_the_server_rule(params):
    for config in (PluginConfig(rule="safe"), PluginConfig(rule="safe", request_options=False)):
        assert request_options(params, config) == SAFE


def test_the_options_below_are_all_there_are():
    assert set(OPTIONS) == set(MarginOptions.model_fields)


@pytest.mark.parametrize("server", RULES)
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "think_ids"])
def test_each_option_overrides_that_of_the_server(server, name):
    config = PluginConfig(rule=server)
    got = request_options(asking(**{name: OPTIONS[name]}), config)
    assert got == margin_options(config).model_copy(update={name: OPTIONS[name]})


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_can_stand_in_the_rule_of_a_request(name):
    value = OPTIONS[name]
    spec = f"margin:{name}={json.dumps(value)}"
    assert request_options(asking(rule=spec), PluginConfig()) == MarginOptions(**{name: value})


def test_a_rule_with_every_option_is_short_enough():
    spec = MarginRule(MarginOptions(**OPTIONS | {"think_ids": (151667, 151668)})).label
    assert request_options(asking(rule=spec), PluginConfig()).skip_tokens == 7


@pytest.mark.parametrize("kappa", [1, 1.0, 5])
def test_kappa_one_is_strict_under_any_server_rule(kappa):
    for server in RULES:
        options = request_options(asking(kappa=kappa), PluginConfig(rule=server))
        assert MarginRule(options).lossless


def test_a_rule_of_the_request_replaces_that_of_the_server():
    server = PluginConfig(rule="margin:0.5,skip_tokens=9")
    assert request_options(asking(rule="strict"), server) == STRICT
    assert request_options(asking(rule="safe"), server) == SAFE
    assert request_options(asking(rule=None, kappa=0.6), server).skip_tokens == 9


def test_options_refine_the_rule_they_come_with():
    asked = asking(rule="safe", max_regret=None, kappa=0.4)
    expected = SAFE.model_copy(update={"max_regret": None, "kappa": 0.4})
    assert request_options(asked, PluginConfig(rule="paper")) == expected


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        (5, "", ["custom_params: must be an object, got 5"]),
        ({REQUEST_KEY: "safe"}, "", ["got 'safe'", '{"kappa": 0.3} or {"rule": "safe"}']),
        (asking(kapa=0.3), "kapa", ["unknown option 'kapa'", "mean 'kappa'?", "Legal: rule, kap"]),
        (asking(rul="safe"), "rul", ["mean 'rule'?"]),
        ({REQUEST_KEY: {1: 2}}, "1", ["unknown option '1'"]),
        (asking(kappa=-0.1), "kappa", ["got -0.1", "Legal: number in [0, inf)"]),
        (asking(kappa=None), "kappa", ["must be a valid number, got None"]),
        (asking(kappa=False), "kappa", ["must be a number, got False"]),
        (asking(kappa="0.3"), "kappa", ["must be a number, got '0.3'"]),
        (asking(kappa=[0.3]), "kappa", ["must be a number, got [0.3]"]),
        (asking(kappa={}), "kappa", ["must be a number, got {}"]),
        (asking(kappa=float("nan")), "kappa", ["finite number, got nan"]),
        (asking(kappa=float("inf")), "kappa", ["finite number, got inf"]),
        (asking(protect_digits=1), "protect_digits", ["must be true or false, got 1"]),
        (asking(exact_between=None), "exact_between", ["must be true or false, got None"]),
        (asking(regret_window=0), "regret_window", ["integer in [1, inf)"]),
        (asking(skip_tokens=1.5), "skip_tokens", ["got 1.5"]),
        (asking(skip_tokens=10**30), "skip_tokens", ["must be in [0, 2147483647]"]),
        (asking(max_regret=1e300), "max_regret", ["must be in [0, 2147483647]"]),
        (asking(think_ids=[5, 6]), "think_ids", ["no list", '"margin:think_ids=(5,6)"']),
        (asking(think_ids="(5,6)"), "think_ids", ['"margin:think_ids=(5,6)"']),
        (asking(rule=7), "rule", ["must be text, got 7"]),
        (asking(rule=""), "rule", ["cannot read ''"]),
        (asking(rule="fly"), "rule", ["'fly' does not run inside SGLang", "strict, margin, "]),
        (asking(rule="sfae"), "rule", ["mean 'safe'?"]),
        (asking(rule="margin:kapa=1"), "kapa", ["mean 'kappa'?"]),
        (asking(rule="margin:-1"), "kappa", ["got -1"]),
        (asking(rule="margin:think_ids=(5,5)"), "", ["two different ids"]),
        (asking(rule="margin:0.3", kappa=0.4), "kappa", ["given twice, as 0.3 and 0.4"]),
        (asking(rule="strict", kappa=0.4), "kappa", ["'strict' has no options"]),
        (asking(rule="margin:" + "(" * 10**6), "rule", ["at most 300 characters, got 1000007"]),
    ],
)
def test_an_illegal_request_is_refused_with_the_place(params, field, words):
    error = refused_request(params)
    place = "custom_params.adaptivespec" if isinstance(params, dict) else "custom_params"
    assert error.field == (f"{place}.{field}" if field else place)
    for word in words:
        assert word in str(error)


def test_a_refused_request_is_refused_again():
    for _ in range(2):
        assert refused_request(asking(kappa=-1)).field == "custom_params.adaptivespec.kappa"
    assert request_options(asking(kappa=1), PluginConfig()) == STRICT
    assert refused_request(asking(kappa=True)).field == "custom_params.adaptivespec.kappa"


@pytest.mark.parametrize(
    "asked", [asking(kappa=0.29), asking(rule="paper"), asking(rule="margin:0.1")]
)
def test_no_kappa_below_that_of_the_operator(asked):
    error = refused_request(asked, PluginConfig(min_kappa=0.3))
    assert error.field == "custom_params.adaptivespec.kappa"
    assert "must be at least 0.3 on this server, got 0." in str(error)


def test_the_least_kappa_itself_is_granted():
    config = PluginConfig(rule="safe", min_kappa=0.3)
    assert request_options(asking(kappa=0.3), config) == SAFE
    assert request_options(asking(rule="safe"), config) == SAFE
    assert request_options(asking(skip_tokens=3), config).kappa == 0.3


@pytest.mark.parametrize("asked", [asking(kappa=1), asking(rule="strict"), asking(nonsense=1)])
def test_an_operator_can_refuse_options_altogether(asked):
    error = refused_request(asked, PluginConfig(request_options=False))
    assert error.field == "custom_params.adaptivespec"
    assert "lets no request choose its own rule" in str(error)
    assert "request_options" in str(error.remedy)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(RULES)
)


@given(
    st.dictionaries(
        st.sampled_from(["rule", *OPTIONS]) | st.text(max_size=6),
        SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(), SCALARS, max_size=2),
        max_size=4,
    ),
    st.sampled_from(RULES),
    st.floats(0, 0.2),
)
def test_a_request_is_granted_within_bounds_or_refused_by_name(asked, server, least):
    config = PluginConfig(rule=server, min_kappa=least)
    options = None
    with contextlib.suppress(ConfigError):
        options = request_options({REQUEST_KEY: asked}, config)
    if options is None:
        error = refused_request({REQUEST_KEY: asked}, config)
        assert (error.field or "").startswith("custom_params.adaptivespec")
        return
    assert options.kappa >= least
    assert not any(isinstance(value, list | dict) for value in asked.values())
    for name, value in asked.items():
        if name != "rule":
            assert getattr(options, name) == value


def test_settings_are_read_without_torch_or_the_host():
    code = (
        "import sys, adaptivespec.integrations.sglang.config; "
        "print([m for m in ('torch', 'sglang', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
