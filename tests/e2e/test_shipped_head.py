"""The head that ships: it fits its target, and drafts as well as when it was shipped."""

from __future__ import annotations

from importlib.resources import files

import pytest

from adaptivespec import Engine
from adaptivespec.core.stats import Statistics
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint

HEAD = str(files("adaptivespec").joinpath("heads", "smollm2-135m-instruct-eagle3"))
#: The head reaches 2.95 on these prompts; with its taps one too low or high, without its rope_theta
#: or its d2t it reaches 2.78, 2.63, 2.86 and 1.0.
FLOOR = 2.88
PROMPTS = [
    "A baker sells 24 muffins a day for 3 dollars each. How much does he make in a week?",
    "Tom has 15 marbles. He gives 4 to Ann and buys twice as many as he gave away. How many now?",
    "A train drives 60 miles an hour for 3 hours and then 40 miles an hour for 2. How far is that?",
]


def test_its_checkpoint_is_whole() -> None:
    head = Eagle3Checkpoint.load(HEAD)
    assert head.config.taps_for(30) == (2, 15, 27)
    assert head.config.rope_theta == 100_000
    assert (head.config.vocab_size, head.config.draft_vocab_size) == (49152, 12288)
    assert head.config.max_position_embeddings == 8192  # its target's; SGLang refuses fewer


@pytest.mark.network
def test_its_accept_length_holds(model_cache: str | None) -> None:
    """A tap off by one, a lost rope_theta or d2t still decode losslessly; only this shows them."""
    engine = Engine.from_pretrained(dtype="float32", cache_dir=model_cache, local_files_only=True)
    total = Statistics()
    for prompt in PROMPTS:
        total.merge(engine.generate(prompt, policy="chain:5", max_tokens=64).stats)
    assert total.accept_length is not None
    assert total.accept_length > FLOOR
