"""Tokenizer: the real model's ids are pinned, templates render as by Hugging Face."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from adaptivespec.core.errors import CheckpointError, ConfigError, PromptError
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights import fetch_embedded
from adaptivespec.engine.weights.chat_template import render

ADDED = [
    ("<s>", True),
    ("</s>", True),
    ("<think>", False),
    ("</think>", False),
    ("[INST]", False),
    ("plain added", False),
]
HELLO = [{"role": "user", "content": "Hello"}]


def write_tokenizer(path: Path, config: dict[str, Any] | None = None) -> Path:
    """A byte-level tokenizer with added tokens of every kind."""
    alphabet = sorted(ByteLevel.alphabet())
    level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    data = {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 4,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [
            {
                "id": len(alphabet) + index,
                "content": content,
                "special": special,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for index, (content, special) in enumerate(ADDED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **level},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [len(alphabet)], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "ByteLevel", **level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {character: index for index, character in enumerate(alphabet)},
            "merges": [],
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken"}}
    return Tokenizer.from_dir(write_tokenizer(tmp_path_factory.mktemp("plain"), config))


def test_encode_adds_no_specials_and_cuts_nothing(plain):
    assert len(plain.encode("abcdefghij")) == 10
    assert plain.token_id("<s>") not in plain.encode("abc")
    assert plain.encode("") == []


def test_text_that_spells_a_special_token_becomes_it(plain):
    assert plain.encode("a</s>") == [plain.token_id("a"), plain.token_id("</s>")]
    assert plain.special_in("a</s><think>b") == ["</s>", "<think>"]
    assert plain.special_in("a < /s>") == []


def test_decode_skips_specials_unless_asked(plain):
    ids = plain.encode("<s>a</s>b")
    assert plain.decode(ids) == "ab"
    assert plain.decode(ids, skip_special_tokens=False) == "<s>a</s>b"
    assert plain.decode([]) == ""
    assert plain.decode([10**6]) == ""


def test_half_a_character_decodes_to_the_replacement_character(plain):
    ids = plain.encode("\U0001f600")
    assert len(ids) == 4
    assert plain.decode(ids[:2]).startswith("\ufffd")
    assert plain.decode(ids) == "\U0001f600"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_round_trip(plain, text):
    assert plain.decode(plain.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("text", ["a\ud800", 5, None, b"abc", ["a"]])
def test_what_is_no_text_is_a_prompt_error(plain, text):
    with pytest.raises(PromptError) as caught:
        plain.encode(text)
    assert caught.value.field == "prompt"
    assert caught.value.remedy


def test_special_ids_hold_flagged_named_and_tag_like_tokens(plain):
    names = {plain.token_text(index) for index in plain.special_ids}
    assert names == {"<s>", "</s>", "<think>", "</think>", "[INST]"}
    assert plain.think_ids == (plain.token_id("<think>"), plain.token_id("</think>"))
    assert plain.vocab_size == 256 + len(ADDED)


def test_digit_ids(plain):
    assert {plain.token_text(index) for index in plain.digit_ids} == set("0123456789")


def test_end_tokens_come_from_all_configs(tmp_path):
    write_tokenizer(tmp_path, {"eos_token": "</s>"})
    (tmp_path / "config.json").write_text('{"eos_token_id": [7, 256]}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    tokenizer = Tokenizer.from_dir(tmp_path)
    assert tokenizer.eos_token_ids == (257, 7, 256, 9)
    assert {7, 9} <= tokenizer.special_ids


def test_no_configs_at_all(tmp_path):
    tokenizer = Tokenizer.from_dir(write_tokenizer(tmp_path))
    assert tokenizer.eos_token_ids == ()
    assert not tokenizer.has_chat_template
    assert tokenizer.think_ids is not None
    with pytest.raises(ConfigError, match="no chat template") as caught:
        tokenizer.apply_chat_template(HELLO)
    assert caught.value.field == "chat_template"


def test_absent_tokenizer(tmp_path):
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json") as caught:
        Tokenizer.from_dir(tmp_path)
    assert "save_pretrained" in caught.value.remedy


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"{", b"\xff\xfe", b'{"model": {"type": "Magic"}}']
)
def test_damaged_tokenizer(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_dir(tmp_path)
    assert caught.value.field == str(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.json", "config.json"])
def test_damaged_configs(tmp_path, name):
    write_tokenizer(tmp_path)
    (tmp_path / name).write_text("[")
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_dir(tmp_path)
    assert caught.value.field == str(tmp_path / name)


class TestTemplate:
    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"tokenizer_config.json": "A"}, "A"),
            ({"chat_template.json": "B", "tokenizer_config.json": "A"}, "B"),
            ({"chat_template.jinja": "C", "chat_template.json": "B"}, "C"),
            (
                {
                    "tokenizer_config.json": [
                        {"name": "tools", "template": "D"},
                        {"name": "default", "template": "E"},
                    ]
                },
                "E",
            ),
            ({"tokenizer_config.json": [{"name": "tools", "template": "D"}]}, None),
        ],
    )
    def test_where_it_is_found(self, tmp_path, files, expected):
        write_tokenizer(tmp_path)
        for name, template in files.items():
            text = template if name.endswith("jinja") else json.dumps({"chat_template": template})
            (tmp_path / name).write_text(text)
        tokenizer = Tokenizer.from_dir(tmp_path)
        assert tokenizer.chat_template == expected
        assert tokenizer.has_chat_template is (expected is not None)

    def test_one_that_is_no_string(self, tmp_path):
        write_tokenizer(tmp_path, {"chat_template": 5})
        with pytest.raises(CheckpointError, match="chat_template is not a string"):
            Tokenizer.from_dir(tmp_path)

    def test_variables(self, tmp_path):
        template = "{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}{{ x }}"
        config = {"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"}
        tokenizer = Tokenizer.from_dir(write_tokenizer(tmp_path, config))
        assert tokenizer.render_chat(HELLO, x=1) == "<s>HelloTrue1"
        ids = tokenizer.apply_chat_template(HELLO, add_generation_prompt=False, x="")
        assert ids[0] == tokenizer.token_id("<s>")
        assert ids.count(ids[0]) == 1
        assert tokenizer.decode(ids) == "HelloFalse"

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            (
                "{% for m in messages %}\n {% if 1 %}\n{{ m.role }}\n {% endif %}\n{% endfor %}",
                "user\n",
            ),
            ("{{ {'k': '\u00e9<&>'} | tojson }}", '{"k": "\u00e9<&>"}'),
            ("{{ {'k': [1]} | tojson(indent=1) }}", '{\n "k": [\n  1\n ]\n}'),
            ("{{ '<b>' }}", "<b>"),
            (
                "{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
                "01",
            ),
            ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hello!"),
            ("{{ strftime_now('%%') }}", "%"),
            ("{{ tools is none }}{{ nothing is defined }}", "TrueFalse"),
        ],
    )
    def test_rendered_as_hugging_face_does(self, source, expected):
        assert render(source, HELLO, tools=None) == expected

    @pytest.mark.parametrize(
        ("source", "match"),
        [
            ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
            ("{% if %}", "refuses them"),
            ("{{ messages[0].content + 1 }}", "fails on them"),
            ("{{ 1 // 0 }}", "ZeroDivisionError"),
            ("{{ missing.attribute.of.it }}", "missing"),
            ("{% for i in range(10**9) %}{% endfor %}", "fails on them"),
        ],
    )
    def test_failures_are_typed(self, source, match):
        with pytest.raises(ConfigError, match=match) as caught:
            render(source, HELLO)
        assert caught.value.field == "messages"
        assert caught.value.remedy

    @pytest.mark.parametrize(
        "source",
        [
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ messages.append(1) }}",
            "{{ cycler.__init__.__globals__.os.system('true') }}",
        ],
    )
    def test_the_sandbox_holds(self, source):
        with pytest.raises(ConfigError):
            render(source, HELLO)

    @pytest.mark.parametrize(
        ("messages", "match"),
        [
            ([], "empty"),
            ("hello", "a str where a list"),
            ({"role": "user", "content": "x"}, "a dict where a list"),
            (None, "a NoneType where a list"),
            (["hello"], "item 0 is a str"),
            ([*HELLO, {"role": "user"}], "item 1: content is missing"),
            ([{"content": "x"}], "item 0: role is missing"),
            ([{"role": "user", "content": None}], "item 0: content is missing or not a string"),
            ([{"role": "user", "content": [{"type": "text"}]}], "item 0: content"),
            ([{"role": "", "content": "x"}], "item 0: role is empty"),
        ],
    )
    def test_bad_messages(self, messages, match):
        with pytest.raises(ConfigError, match=match) as caught:
            render("x", messages)
        assert caught.value.field == "messages"
        assert caught.value.remedy


GOLDEN = [
    ("", []),
    ("Hello, world! How are you?", [19556, 28, 905, 17, 1073, 359, 346, 47]),
    (
        "12345 + 67890 = 80235",
        [33, 34, 35, 36, 37, 1232, 216, 38, 39, 40, 41, 32, 446, 216, 40, 32, 34, 35, 37],
    ),
    ("  12\n\n 7", [256, 33, 34, 8866, 39]),
    (
        "na\xefve caf\xe9 \xbd \u0663\u0664",
        [3546, 46494, 37366, 216, 16738, 216, 164, 113, 164, 114],
    ),
    (
        "\u65e5\u672c\u8a9e \u041f\u0440\u0438\u0432\u0435\u0442",
        [23274, 115, 40993, 179, 120, 248, 5470, 249, 46879, 16464, 32547],
    ),
    (
        "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea",
        [
            10813,
            242,
            218,
            10813,
            235,
            119,
            321,
            231,
            10813,
            235,
            119,
            321,
            231,
            10813,
            235,
            117,
            10813,
            225,
            119,
            10813,
            225,
            120,
        ],
    ),
    (
        "def f(x):\n    return x ** 2  # ok\n\n\tpass\n",
        [
            1604,
            275,
            24,
            104,
            727,
            472,
            1003,
            1792,
            1903,
            216,
            34,
            216,
            907,
            10907,
            1116,
            197,
            5467,
            198,
        ],
    ),
    (" \t \n \r\n ", [216, 197, 3717, 216, 23799]),
    ("hi<|im_end|>\n<|endoftext|>x", [6004, 2, 198, 0, 104]),
    ("<|im_start|", [44, 108, 306, 79, 3738, 108]),
    ("it's I'LL don't", [269, 506, 339, 23, 16421, 1326, 982]),
    ("a\u0301 nbsp\xa0wide\u3000", [81, 151, 219, 304, 32093, 15442, 3641, 12109, 218]),
    ("<think>1,000</think>", [44, 17400, 46, 33, 28, 32, 32, 32, 9617, 17400, 46]),
]
"""Text and its ids under the embedded model's tokenizer: digits one by one, never with a space."""

SYSTEM = [
    1,
    9690,
    198,
    2683,
    359,
    253,
    5356,
    5646,
    11173,
    3365,
    3511,
    308,
    34519,
    28,
    7018,
    411,
    407,
    19712,
    8182,
    2,
    198,
]
"""The system message that the template adds where a conversation has none."""

CHATS = [
    (
        [{"role": "user", "content": "Hi  12"}],
        True,
        [*SYSTEM, 1, 4093, 198, 26843, 256, 33, 34, 2, 198, 1, 520, 9531, 198],
    ),
    (
        [{"role": "user", "content": "Hi  12"}],
        False,
        [*SYSTEM, 1, 4093, 198, 26843, 256, 33, 34, 2, 198],
    ),
    (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "\xe9 \U0001f600"},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "x"},
        ],
        True,
        [
            1,
            9690,
            198,
            6077,
            5453,
            30,
            2,
            198,
            1,
            4093,
            198,
            2756,
            40303,
            218,
            2,
            198,
            1,
            520,
            9531,
            198,
            2231,
            2,
            198,
            1,
            4093,
            198,
            104,
            2,
            198,
            1,
            520,
            9531,
            198,
        ],
    ),
    (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "\xe9 \U0001f600"},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "x"},
        ],
        False,
        [
            1,
            9690,
            198,
            6077,
            5453,
            30,
            2,
            198,
            1,
            4093,
            198,
            2756,
            40303,
            218,
            2,
            198,
            1,
            520,
            9531,
            198,
            2231,
            2,
            198,
            1,
            4093,
            198,
            104,
            2,
            198,
        ],
    ),
]


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    return Tokenizer.from_dir(fetch_embedded(os.environ.get("ADAPTIVESPEC_CACHE"), offline=True))


@pytest.mark.network
class TestEmbedded:
    @pytest.mark.parametrize(("text", "ids"), GOLDEN)
    def test_ids_are_pinned(self, real, text, ids):
        assert real.encode(text) == ids
        assert real.decode(ids, skip_special_tokens=False) == text

    @pytest.mark.parametrize(("messages", "generate", "ids"), CHATS)
    def test_chats_are_pinned(self, real, messages, generate, ids):
        assert real.apply_chat_template(messages, add_generation_prompt=generate) == ids

    def test_facts(self, real):
        assert real.vocab_size == 49152
        assert real.special_ids == frozenset(range(17))
        assert real.eos_token_ids == (2,)
        assert real.digit_ids == frozenset(range(32, 42))
        assert real.think_ids is None
        assert real.has_chat_template

    def test_the_gguf_file_gives_the_same_tokenizer(self, real):
        path = fetch_embedded(os.environ.get("ADAPTIVESPEC_CACHE"), offline=True)
        other = Tokenizer.from_dir(path / "SmolLM2-135M-Instruct.Q4_1.gguf")
        assert [other.encode(text) for text, _ in GOLDEN] == [ids for _, ids in GOLDEN]
        assert other.chat_template == real.chat_template
        assert other.special_ids == real.special_ids
