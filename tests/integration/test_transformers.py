"""model.generate of transformers with our decode loop: its arguments mean what they mean there."""

from __future__ import annotations

import string

import pytest
import torch

from fakes import tiny
from fakes.scripted import ScriptedDrafter

transformers = pytest.importorskip("transformers", reason="needs transformers")

from transformers.generation.utils import GenerateDecoderOnlyOutput  # noqa: E402

from adaptivespec.draft.eagle3 import Eagle3Drafter  # noqa: E402
from adaptivespec.integrations.transformers import generate, load_drafter  # noqa: E402
from fakes.host_model import (  # noqa: E402
    PROMPT,
    TREE,
    end_token,
    ids_of,
    knows,
    model_of,
    ours,
    plain,
)

FAMILIES = ("Llama", "Qwen2", "Qwen3")
OPTIONS = [
    {},
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 2},
    {"bad_words_ids": [[4], [8, 2]]},
    {"sequence_bias": {(7,): 4.0, (2, 3): -6.0}},
    {"begin_suppress_tokens": [10, 11]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: next(iter(o), "plain"))
@pytest.mark.parametrize("family", FAMILIES)
def test_strict_is_the_models_own_greedy_output(family, options):
    model = model_of(family)
    want = plain(model, ids_of(), **options)
    out = ours(model, ids_of(), draft_model=knows(want[0].tolist()), policy=TREE, **options)
    assert out.sequences.tolist() == want.tolist()
    assert out.accept_length > 3
    assert out.lossless


@pytest.mark.parametrize("family", FAMILIES)
def test_an_eagle3_head_drafts_for_the_users_model(family, tmp_path):
    model, path = model_of(family), tmp_path / "head"
    tiny.head().save(path)
    want = plain(model, ids_of()).tolist()
    for draft in (str(path), path, tiny.head(), load_drafter(model, path), f"{path}+ngram"):
        out = ours(model, ids_of(), draft_model=draft)
        assert out.sequences.tolist() == want
        assert out.policy == "dcs"
        assert out.statistics["num_draft_tokens"] > 0


def test_a_head_is_loaded_once_a_model(tmp_path, monkeypatch):
    tiny.head().save(tmp_path)
    made = []
    init = Eagle3Drafter.__init__
    monkeypatch.setattr(
        Eagle3Drafter, "__init__", lambda self, *a, **k: (made.append(1), init(self, *a, **k))[1]
    )
    for _ in range(2):
        ours(model_of(), ids_of(), tokens=2, draft_model=str(tmp_path))
    assert len(made) == 1


def test_n_grams_draft_without_any_weights():
    model, prompt = model_of(), PROMPT * 4
    out = ours(model, ids_of(prompt), draft_model="ngram", policy="static:3,1,4")
    assert out.sequences.tolist() == plain(model, ids_of(prompt)).tolist()
    assert out.statistics["num_draft_tokens"] > 0


def test_without_a_head_it_decodes_plainly():
    out = ours(model_of(), ids_of())
    assert out.sequences.tolist() == plain(model_of(), ids_of()).tolist()
    assert (out.policy, out.accept_length) == ("none", 1.0)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6])
def test_max_new_tokens_is_met_exactly(tokens):
    text = plain(model_of(), ids_of(), 12)[0].tolist()
    out = ours(model_of(), ids_of(), tokens, draft_model=knows(text), policy=TREE)
    assert out.sequences[0].tolist() == text[: len(PROMPT) + tokens]


@pytest.mark.parametrize("extra", [[], [60]])
def test_an_end_token_ends_within_a_run(extra):
    text = plain(model_of(), ids_of())[0].tolist()
    eos = [end_token(text), *extra]
    want = plain(model_of(), ids_of(), eos_token_id=eos)[0].tolist()
    assert len(want) < len(text)
    out = ours(model_of(), ids_of(), draft_model=knows(text), policy=TREE, eos_token_id=eos)
    assert out.sequences[0].tolist() == want


def test_min_new_tokens_bans_the_end_at_its_positions_only():
    text = plain(model_of(), ids_of())[0].tolist()
    options = {"eos_token_id": [end_token(text)], "min_new_tokens": 12}
    want = plain(model_of(), ids_of(), **options)[0].tolist()
    assert len(want) >= len(PROMPT) + 12
    out = ours(model_of(), ids_of(), draft_model=knows(text, want), policy=TREE, **options)
    assert out.sequences[0].tolist() == want


def test_processors_see_the_true_prefix_of_every_committed_token():
    seen = []

    def shift(ids, scores):
        """Depends on the whole prefix, and writes into what it is given."""
        seen.append(tuple(ids[0].tolist()))
        scores[:, int(ids.sum()) % 61] += 5.0
        return scores

    processors = transformers.LogitsProcessorList([shift])
    want = plain(model_of(), ids_of(), logits_processor=processors)[0].tolist()
    seen.clear()
    out = ours(
        model_of(), ids_of(), draft_model=knows(want), policy=TREE, logits_processor=processors
    )
    assert out.sequences[0].tolist() == want
    assert out.accept_length > 3
    assert {tuple(want[:n]) for n in range(len(PROMPT), len(want))} <= set(seen)


def test_criteria_are_asked_once_for_each_committed_token_and_nothing_follows_a_stop():
    text = plain(model_of(), ids_of())[0].tolist()
    seen = []

    def at_eleven(ids, scores, **kwargs):
        seen.append(ids[0].tolist())
        return torch.full((len(ids),), ids.shape[1] == 11)

    criteria = transformers.StoppingCriteriaList([at_eleven])
    out = ours(
        model_of(), ids_of(), draft_model=knows(text), policy=TREE, stopping_criteria=criteria
    )
    assert out.sequences[0].tolist() == text[:11]
    assert seen == [text[:n] for n in range(len(PROMPT) + 1, 12)]


def test_stop_strings_end_within_a_run():
    tokenizers = pytest.importorskip("tokenizers")
    letters = string.ascii_letters + string.digits[:9]
    words = {letter: i for i, letter in enumerate(letters)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    backend.decoder = tokenizers.decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    text = plain(model_of(), ids_of())[0].tolist()
    place = len(PROMPT) + 6
    stop = letters[text[place]] + letters[text[place + 1]]
    options = {"stop_strings": [stop], "tokenizer": tokenizer}
    want = plain(model_of(), ids_of(), **options)[0].tolist()
    assert len(PROMPT) < len(want) < len(text)
    criterion = transformers.StopStringCriteria(tokenizer=tokenizer, stop_strings=[stop])
    out = ours(
        model_of(),
        ids_of(),
        draft_model=knows(text),
        policy=TREE,
        stopping_criteria=transformers.StoppingCriteriaList([criterion]),
    )
    assert out.sequences[0].tolist() == want


class Streamer:
    def __init__(self):
        self.values, self.ends = [], 0

    def put(self, value):
        assert not self.ends
        self.values.append(value.flatten().tolist())

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_streamer_gets_the_prompt_then_each_token_then_the_end(wrapped):
    text = plain(model_of(), ids_of())[0].tolist()
    eos, streamer = end_token(text), Streamer()

    def around(model, input_ids, draft_model=None, policy=None, **arguments):
        return generate(model, input_ids, draft_model=draft_model, policy=policy, **arguments)

    out = ours(
        model_of(),
        ids_of(),
        draft_model=knows(text),
        policy=TREE,
        eos_token_id=eos,
        streamer=streamer,
        custom_generate=around if wrapped else generate,
    )
    answer = out.sequences[0, len(PROMPT) :].tolist()
    assert streamer.values == [PROMPT, *([token] for token in answer)]
    assert answer[-1] == eos
    assert streamer.ends == 1


def test_rows_of_a_batch_are_their_solo_runs_padded_as_transformers_pads():
    rows = [[5], [5, 9, 3, 7, 2], [4, 4, 8, 1, 9, 9, 2, 6, 3]]
    solo = [plain(model_of(), ids_of(row))[0].tolist() for row in rows]
    eos = next(token for token in solo[1][8:] if token not in solo[2])
    batch = ids_of(*([0] * (9 - len(row)) + row for row in rows))
    mask = ids_of(*([0] * (9 - len(row)) + [1] * len(row) for row in rows))
    options = {"attention_mask": mask, "eos_token_id": eos, "repetition_penalty": 1.2}
    drafter = knows(*solo)
    out = ours(model_of(), batch, draft_model=drafter, policy=TREE, **options)
    assert out.sequences.tolist() == plain(model_of(), batch, **options).tolist()


def test_a_processor_that_knows_rows_by_their_place_gets_the_right_one():
    allowed = [[3, 4, 5], [10, 11, 12]]
    options = {"prefix_allowed_tokens_fn": lambda row, ids: allowed[row]}
    batch = ids_of(PROMPT, PROMPT)
    want = plain(model_of(), batch, 6, **options).tolist()
    assert want[0] != want[1]
    out = ours(model_of(), batch, 6, draft_model=knows(*want), policy=TREE, **options)
    assert out.sequences.tolist() == want


def test_lossy_rules_say_so_and_kappa_one_is_strict():
    model = model_of()
    text = plain(model, ids_of())[0].tolist()
    drafter = ScriptedDrafter(lambda prefix: [(11, -1), (12, -1), (13, 0)])
    lossy = ours(model, ids_of(), draft_model=drafter, policy=TREE, kappa=0.0)
    assert lossy.rule == "margin:kappa=0.0"
    assert not lossy.lossless
    assert lossy.statistics["num_promoted_tokens"] > 0
    assert lossy.sequences[0].tolist() != text
    strict = ours(model, ids_of(), draft_model=drafter, policy=TREE, kappa=1.0)
    assert strict.lossless
    assert strict.sequences[0].tolist() == text


def test_ends_are_never_promoted():
    drafter = ScriptedDrafter(lambda prefix: [(11, -1), (12, -1)])
    options = {"draft_model": drafter, "policy": TREE, "kappa": 0.0}
    free = ours(model_of(), ids_of(), **options)
    assert 11 in free.sequences[0].tolist()  # promoted, where nothing says that it is an end
    out = ours(model_of(), ids_of(), eos_token_id=11, **options)
    assert out.statistics["num_promoted_tokens"] > 0
    assert 11 not in out.sequences[0].tolist()


def test_the_type_is_transformers_own():
    out = ours(model_of(), ids_of(), 3)
    assert isinstance(out, GenerateDecoderOnlyOutput)
    assert out["sequences"] is out.sequences
    assert out.scores is None
    tensor = ours(model_of(), ids_of(), 3, return_dict_in_generate=False)
    assert torch.equal(tensor, out.sequences)
