"""What transformers answers for the tiny models of fakes.families: what the golden file holds.

Run with transformers installed to write tests/engine/golden_families.json anew:
`PYTHONPATH=src:tests python -m engine.family_golden`.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from fakes import families

FILE = Path(__file__).with_name("golden_families.json")
PROMPT = [(37 * i + 3) % families.VOCAB for i in range(24)]
TREE = ([7, 200, 13, 45, 91, 270], [-1, 0, 0, 1, 2, 2])
#: Of each row's logits, so many are kept.
KEPT = 24


def reference(config: families.Config, tensors: dict[str, torch.Tensor] | None = None) -> Any:
    """The model as transformers builds it, in float32, with our weights: all and no others."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = AutoConfig.for_model(**deepcopy(config))  # which it changes
    made.dtype = torch.float32
    model = AutoModelForCausalLM.from_config(made, attn_implementation="eager")
    tensors = families.weights(config) if tensors is None else tensors
    if config["tie_word_embeddings"]:
        tensors = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    model.load_state_dict(tensors, strict=True)
    return model.float().eval()


@torch.inference_mode()
def logits(model: Any, ids: list[int]) -> torch.Tensor:
    """`[len(ids), vocab]`, without a cache or a mask of ours."""
    found: torch.Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return found


def lineage(parents: list[int], node: int) -> list[int]:
    """Nodes from the root to `node`."""
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def golden(family: str) -> dict[str, Any]:
    """Logits of the prompt's last row, and of every node of the tree behind it as a chain."""
    config, (tokens, parents) = families.CONFIGS[family], TREE
    model = reference(config)
    chains = [[*PROMPT, *(tokens[i] for i in lineage(parents, n))] for n in range(len(tokens))]
    rows = [logits(model, ids)[-1, :KEPT] for ids in [PROMPT, *chains]]
    digits = [[round(float(value), 5) for value in row] for row in rows]
    return {"config": config, "prompt": digits[0], "tree": digits[1:]}


if __name__ == "__main__":
    text = ",\n".join(f'"{f}": {json.dumps(golden(f))}' for f in families.FAMILIES)
    FILE.write_text(f"{{\n{text}\n}}\n")
