"""The engine on a real GPU. Skipped where there is none; test_cuda_pretended.py asks the rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adaptivespec import Engine
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.eagle3_static import StaticEagle3Drafter
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.static_target import StaticTarget
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.nn.static import Uncaptured
from fakes import tiny, tiny_engine
from fakes.scripted import COSTS

PROMPT = [5, 9, 11, 2, 40]
TREE = DraftTree.from_parents([7, 3, 4, 8, 8, 9], [-1, 0, 0, 1, 2, 2])
PATHS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 2, 5]]
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have?"


@pytest.fixture(scope="module")
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU and a torch built for it")
    return torch.device("cuda", 0)


def model(device: torch.device, dtype: torch.dtype = torch.float32) -> Llama:
    return Llama(tiny.weights(), tiny.CONFIG, dtype, tiny.MAX_LEN, device)


def on(device: torch.device, tree: DraftTree) -> DraftTree:
    arrays = (t.to(device) for t in (tree.token, tree.parent, tree.depth, tree.logq))
    return DraftTree(*arrays, max_depth=tree.max_depth)


@pytest.mark.parametrize("captured", [True, False])
def test_a_tree_gets_the_logits_of_the_cpu(cuda: torch.device, captured: bool) -> None:
    here = TorchTarget(model(torch.device("cpu")), tiny.MAX_LEN)
    there = StaticTarget(model(cuda), tiny.MAX_LEN, None if captured else Uncaptured())
    near, far = here.new_cache(64), there.new_cache(64)
    want = here.prefill(near, PROMPT, (1, 2, 4)), here.verify(near, TREE, (1, 2, 4))
    got = there.prefill(far, PROMPT, (1, 2, 4)), there.verify(far, on(cuda, TREE), (1, 2, 4))
    for one, two in zip(got, want, strict=True):
        torch.testing.assert_close(one.logits.cpu(), two.logits, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(one.taps.cpu(), two.taps, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_node_equals_its_path_as_a_chain(cuda: torch.device, dtype: torch.dtype) -> None:
    target = StaticTarget(model(cuda, dtype), tiny.MAX_LEN)
    cache, tree = target.new_cache(64), on(cuda, TREE)
    target.prefill(cache, PROMPT)
    found = target.verify(cache, tree).logits.clone()
    for node, path in enumerate(PATHS):
        chain = DraftTree.chain([int(TREE.token[i]) for i in path], device=cuda)
        got = target.verify(cache, chain).logits[-1].float()
        atol = 1e-4 if dtype == torch.float32 else 0.1
        torch.testing.assert_close(got, found[node].float(), atol=atol, rtol=atol)


def test_a_graph_is_replayed_on_new_inputs(cuda: torch.device) -> None:
    target = StaticTarget(model(cuda), tiny.MAX_LEN)
    loose = StaticTarget(target.model, tiny.MAX_LEN, Uncaptured())
    one, two = target.new_cache(16), loose.new_cache(16)
    for at in range(40):
        tree = DraftTree.chain([at % 61, (at * 7) % 61, 3], device=cuda)
        got, want = target.verify(one, tree), loose.verify(two, tree)
        torch.testing.assert_close(got.logits, want.logits, atol=1e-4, rtol=1e-4)
        target.commit(one, [0, 1])
        loose.commit(two, [0, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "static:5,4,16"},
        {"policy": "dcs"},
        {"policy": "dcs", "rule": "margin:0.3"},
        {"policy": "static:4,3,12", "temperature": 1.0, "seed": 3},
    ],
)
def test_answers_are_those_of_the_cpu(cuda: torch.device, options: dict[str, Any]) -> None:
    target = StaticTarget(model(cuda), tiny.MAX_LEN)
    lent = target.model.embedding, 5, tiny.MAX_LEN, torch.float32, target.model.output
    tokenizer: Any = tiny_engine.NumberTokenizer()
    there = Engine(target, tokenizer, StaticEagle3Drafter(tiny.head(), *lent), "tiny")
    there._costs = COSTS
    asked: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, **options}
    for prompt in (PROMPT, [3], list(range(1, 41))):
        want = tiny_engine.engine().generate(prompt, **asked)
        assert there.generate(prompt, **asked).token_ids == want.token_ids


@pytest.mark.network
def test_strict_is_plain_decoding(cuda: torch.device, model_cache: str | None) -> None:
    """In the precision people use: a chain in a bucket of rows takes the same kernels.

    Siblings put keys in other columns, which rounds otherwise; scripts/gpu_check.sh judges those.
    """
    engine = Engine.from_pretrained(device=str(cuda), cache_dir=model_cache)
    plain = engine.generate(QUESTION, policy="none", max_tokens=128)
    for policy in ("chain:2", "chain:4", "chain:8"):
        drafted = engine.generate(QUESTION, policy=policy, max_tokens=128)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stats.num_accepted_draft_tokens > 0
