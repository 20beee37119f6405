"""Tiny random models of transformers, decoded by themselves and by our loop; needs transformers."""

from __future__ import annotations

from functools import cache

import torch
import transformers

from adaptivespec.integrations.transformers import generate
from fakes.scripted import ScriptedDrafter

PROMPT = [5, 9, 3, 7]
TREE = "static:4,2,10"


@cache
def model_of(family="Llama", vocab=61, layers=5):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def ids_of(*rows):
    return torch.tensor([list(row) for row in rows or [PROMPT]])


def plain(model, ids, tokens=24, **options):
    return model.generate(ids, max_new_tokens=tokens, **{"do_sample": False, **options})


def ours(model, ids, tokens=24, **options):
    defaults = {"do_sample": False, "custom_generate": generate, "return_dict_in_generate": True}
    return model.generate(ids, **{"max_new_tokens": tokens, **defaults, **options})


def knows(*texts, wrong=True):
    """A drafter that drafts how these texts go on, each token beside one that is not next."""
    known = [tuple(text) for text in texts]

    def nodes(prefix):
        for text in known:
            here = len(prefix) + 1  # the prefix lacks the first token of the prompt
            if text[1:here] == prefix:
                tree, parent = [], -1
                for token in text[here : here + 4]:
                    tree.append((token, parent))
                    if wrong:
                        tree.append(((token + 1) % 61, parent))
                    parent = len(tree) - 1 - wrong
                return tree
        return [(2, -1), (3, 0)]

    return ScriptedDrafter(nodes)


def end_token(text):
    """A token of the text's middle that did not come before."""
    return next(t for i, t in enumerate(text) if i >= len(PROMPT) + 6 and t not in text[:i])
