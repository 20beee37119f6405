from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.integrations.sglang.vocabulary import (
    check_tokenizer,
    digit_ids,
    protected_ids,
    think_ids,
)
from adaptivespec.verify.margin import MarginOptions

PIECES = ["a", "7", "42", "Ġ3", "3a", "Ġ", "Â½", "Â²", "Ù¢", "<unk>", "</s>"]
"""As byte-level vocabularies write them: a space, a half, a squared and an Arabic two are there."""

ADDED = [
    ("<unk>", True),
    ("</s>", True),
    ("quiet", True),
    ("<think>", False),
    ("</think>", False),
    ("[INST]", False),
    ("[/TOOL_CALLS]", False),
    ("<two words>", False),
    ("<b>old", False),
    ("[inst]", False),
    ("plain", False),
    ("2024", False),
]


def backend(added=ADDED) -> Backend:
    made = Backend(BPE({piece: index for index, piece in enumerate(PIECES)}, []))
    made.decoder = ByteLevel()
    for content, special in added:
        made.add_tokens([AddedToken(content, special=special, normalized=False)])
    return made


@dataclass
class HostTokenizer:
    """What SGLang has: Hugging Face's interface on top of the same backend."""

    backend: Backend = field(default_factory=backend)
    eos_token_id: int | None = None
    all_special_ids: list[int | None] = field(default_factory=list)
    additional_stop_token_ids: set[int] | None = None

    @property
    def added_tokens_decoder(self):
        return self.backend.get_added_tokens_decoder()

    def __len__(self):
        return self.backend.get_vocab_size(with_added_tokens=True)

    def convert_tokens_to_ids(self, text):
        index = self.backend.token_to_id(text)
        return self.backend.token_to_id("<unk>") if index is None else index

    def convert_ids_to_tokens(self, index):
        return self.backend.id_to_token(index)

    def decode(self, ids, skip_special_tokens=False):
        return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def texts(self, ids):
        return {self.backend.id_to_token(index) for index in ids}


class MistralTokenizer(HostTokenizer):
    """Mistral's own keeps no list of added tokens and says so in this way."""

    @property
    def added_tokens_decoder(self):
        raise NotImplementedError


class ByteTokenizer:
    """SGLang's wrapper of tiktoken has little of the interface."""

    eos_token_id = 11
    vocab_size = 12
    additional_stop_token_ids = None

    def decode(self, ids, *args, **kwargs):
        return "".join([*"01234567890", "<|eos|>"][index] for index in ids)


def test_structure_is_protected_and_text_is_not():
    host = HostTokenizer()
    assert host.texts(protected_ids(host, [])) == {
        "<unk>",
        "</s>",
        "quiet",
        "<think>",
        "</think>",
        "[INST]",
        "[/TOOL_CALLS]",
    }


@pytest.mark.parametrize(
    "host",
    [
        HostTokenizer(backend([]), eos_token_id=0),
        HostTokenizer(backend([]), all_special_ids=[0, None]),
        HostTokenizer(backend([]), additional_stop_token_ids={0}),
    ],
)
def test_named_tokens_and_attached_stop_ids_are_protected(host):
    assert protected_ids(host, []) == {0}
    assert protected_ids(host, {5, 99}) == {0, 5, 99}


def test_tokenizers_with_half_the_interface():
    assert protected_ids(MistralTokenizer(all_special_ids=[8, 9]), [3]) == {3, 8, 9}
    assert protected_ids(ByteTokenizer(), [3]) == {3, 11}
    assert think_ids(ByteTokenizer()) is None
    assert digit_ids(ByteTokenizer(), 100) == frozenset(range(11))


def test_without_a_tokenizer_only_the_end_tokens_are_known():
    assert protected_ids(None, [2, 7]) == {2, 7}
    assert protected_ids(None, []) == frozenset()
    assert digit_ids(None, 100) is None
    assert think_ids(None) is None


def test_digits_are_tokens_of_decimals_only():
    host = HostTokenizer()
    assert host.texts(digit_ids(host, 1000)) == {"7", "42", "Ġ3", "Ù¢", "2024"}


@given(st.integers(0, 40))
def test_no_digit_lies_outside_the_models_vocabulary(vocab_size):
    host = HostTokenizer()
    everything = digit_ids(host, 1000)
    assert everything is not None
    assert digit_ids(host, vocab_size) == {index for index in everything if index < vocab_size}


def test_thinking_tokens():
    host = HostTokenizer()
    assert think_ids(host) == (
        host.backend.token_to_id("<think>"),
        host.backend.token_to_id("</think>"),
    )


@pytest.mark.parametrize("added", [[], [("<think>", True)], [("</think>", False)]])
def test_no_thinking_tokens_where_one_is_unknown(added):
    assert think_ids(HostTokenizer(backend([("<unk>", True), *added]))) is None


@given(
    st.lists(
        st.tuples(
            st.text("<>/[]_ tINSk|12", min_size=1, max_size=8).filter(str.strip)
            | st.sampled_from(["<think>", "</think>", "<|im_end|>", "12"]),
            st.booleans(),
        ),
        max_size=6,
        unique_by=lambda pair: pair[0],
    )
)
def test_host_and_engine_agree_on_every_vocabulary(added):
    both = backend([("</s>", True), *added])
    engine = Tokenizer(both, {"eos_token": "</s>", "unk_token": "<unk>"})
    host = HostTokenizer(both, all_special_ids=[both.token_to_id("<unk>")])
    assert protected_ids(host, engine.eos_token_ids) == engine.special_ids
    assert digit_ids(host, engine.vocab_size) == engine.digit_ids
    assert think_ids(host) == engine.think_ids


def test_options_about_tokens_need_a_tokenizer_that_names_them():
    full, poor = HostTokenizer(), HostTokenizer(backend([]))
    everything = MarginOptions(protect_digits=True, think_only=True)
    check_tokenizer(everything, full, "rule")
    check_tokenizer(MarginOptions(protect_digits=True), poor, "rule")
    check_tokenizer(MarginOptions(), None, "rule")
    check_tokenizer(MarginOptions(think_only=True, think_ids=(5, 6)), None, "rule")
    with pytest.raises(ConfigError, match="--skip-tokenizer-init") as caught:
        check_tokenizer(MarginOptions(protect_digits=True), None, "here")
    assert caught.value.field == "here.protect_digits"
    for host in (poor, None):
        with pytest.raises(ConfigError, match=r"no <think> and </think>.*think_ids=") as caught:
            check_tokenizer(MarginOptions(think_only=True), host, "here")
        assert caught.value.field == "here.think_only"
