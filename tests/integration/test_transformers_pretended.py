"""model.generate on a pretended GPU: our loop mixes nothing of the host with the device."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers")

from adaptivespec import Engine
from adaptivespec.core.errors import FallbackWarning
from fakes import host_model, tiny
from fakes.other_models import save_other
from fakes.pretend_cuda import CUDA, Far, pretend_cuda

PROMPTS = [[3, 4, 5, 3, 4, 5, 3, 4], [0, 0, 0, 0, 0, 7, 9, 9]]
GREEDY = [
    {"draft_model": "ngram"},
    {"draft_model": tiny.head(), "policy": "static:3,2,7"},
    {"draft_model": tiny.head(), "kappa": 0.2},
    {"draft_model": "ngram", "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
]
SAMPLED = [{"do_sample": True, "temperature": 0.8, "top_k": 9, "top_p": 0.9}]


@pytest.fixture(autouse=True)
def tensors_are_replaced():
    """A module that moves takes new tensors: those of the stand-in cannot be put into old ones."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(before)


@pytest.mark.parametrize("options", [*GREEDY, *SAMPLED, {"draft_model": "ngram", **SAMPLED[0]}])
def test_answers_are_those_of_the_cpu(options):
    model, ids = host_model.model_of(), torch.tensor(PROMPTS)
    given = {"max_new_tokens": 12, "attention_mask": (ids > 0).long(), **options}
    given |= {"custom_generate": host_model.generate, "pad_token_id": 0, "eos_token_id": 59}
    torch.manual_seed(0)
    want = model.generate(ids, **given)
    with pretend_cuda():
        torch.manual_seed(0)
        moved = copy.deepcopy(model).to(CUDA)
        given["attention_mask"] = given["attention_mask"].to(CUDA)
        got = moved.generate(ids.to(CUDA), **given)
        assert isinstance(got, Far)
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("kind", ["gpt_neox", "olmo2"])
def test_a_model_of_another_kind_runs_there(kind, tmp_path):
    """Through `Engine`, whose fallback transformers is."""
    path = save_other(kind, tmp_path)
    given = {"max_tokens": 12, "policy": "static:3,2,7", "ignore_eos": True}
    loaded = {"draft_model": "ngram", "dtype": "float32"}
    with pytest.warns(FallbackWarning):
        near = Engine.from_pretrained(path, backend="torch", **loaded)
    want = near.generate([5, 6, 5, 6, 5, 6], **given).token_ids
    with pretend_cuda():
        with pytest.warns(FallbackWarning):
            engine = Engine.from_pretrained(path, device="cuda", **loaded)
        assert engine.target.device == CUDA
        assert engine.generate([5, 6, 5, 6, 5, 6], **given).token_ids == want
