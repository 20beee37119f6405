"""The judge that ships: it fits the embedded model, and its rule decodes with it."""

from __future__ import annotations

import pytest

from adaptivespec import Engine
from adaptivespec.core.errors import ConfigError

PROMPT = "Tom has 3 apples and buys 5 more. How many?"


@pytest.mark.network
def test_the_trained_rules_on_the_embedded_model(model_cache: str | None) -> None:
    engine = Engine.from_pretrained(cache_dir=model_cache, local_files_only=True)
    options = {"policy": "static:5,4,16", "max_tokens": 32}
    assert not engine.generate(PROMPT, rule="judge", **options).lossless
    lenient = engine.generate(PROMPT, rule="judge:0.05", **options)
    assert lenient.stats.num_promoted_tokens > 0
    with pytest.raises(ConfigError, match="no semantic head ships"):
        engine.generate(PROMPT, rule="semantic", **options)
