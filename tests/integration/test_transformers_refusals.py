"""Arguments of model.generate that speculative decoding cannot honour are refused by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fakes import tiny

transformers = pytest.importorskip("transformers", reason="needs transformers")

from adaptivespec.core.errors import AdaptiveSpecError  # noqa: E402
from fakes.host_model import ids_of, model_of, ours  # noqa: E402

ANY = SimpleNamespace(put=print)  # a streamer
REFUSED = [
    ("num_beams", {"num_beams": 2}),
    ("penalty_alpha", {"penalty_alpha": 0.6, "top_k": 4}),
    ("prompt_lookup_num_tokens", {"prompt_lookup_num_tokens": 3}),
    ("guidance_scale", {"guidance_scale": 1.5}),
    ("output_scores", {"output_scores": True}),
    ("output_hidden_states", {"output_hidden_states": True}),
    ("cache_implementation", {"cache_implementation": "static"}),
    ("use_cache", {"use_cache": False}),
    ("assistant_model", {"assistant_model": "the model"}),
    (
        "streamer",
        {"streamer": SimpleNamespace(put=print), "num_return_sequences": 2, "do_sample": True},
    ),
    ("attention_mask", {"attention_mask": torch.tensor([[1, 1, 1, 0]])}),
    ("position_ids", {"position_ids": torch.tensor([[0, 1, 2, 7]])}),
    ("cache", {"past_key_values": "a cache"}),
    ("draft_model", {"draft_model": 7}),
    ("draft_model", {"draft_model": "/no/such/head"}),
    ("draft_model", {"draft_model": tiny.head(vocab_size=99)}),
    ("policy", {"policy": "dcs"}),
    ("policy", {"policy": "priced", "draft_model": "a head"}),
    ("policy", {"policy": "nonsense"}),
    ("rule", {"rule": "nonsense"}),
    ("kappa", {"rule": "strict", "kappa": 0.3}),
    ("do_sample", {"rule": "regret", "do_sample": True}),
    ("max_length", {"max_new_tokens": 200}),
]


@pytest.mark.parametrize(("field", "options"), REFUSED, ids=lambda v: v if type(v) is str else "")
def test_what_cannot_be_honoured_is_refused_by_name(field, options):
    model, options = model_of(), dict(options)
    if options.get("assistant_model"):
        options["assistant_model"] = model
    if options.get("past_key_values"):
        options["past_key_values"] = model(ids_of()).cache
    if options.get("draft_model") == "a head":
        options["draft_model"] = tiny.head()
    with pytest.raises(AdaptiveSpecError) as caught:
        ours(model, ids_of(), **options)
    assert caught.value.field == field


def test_a_misspelt_argument_is_refused():
    with pytest.raises(ValueError, match="kapa"):
        ours(model_of(), ids_of(), kapa=0.2)
