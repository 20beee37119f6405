"""Our decode loop behind ``model.generate`` of Hugging Face transformers.

``model.generate(ids, custom_generate=adaptivespec.integrations.transformers.generate, ...)``, with
``draft_model``, ``rule``, ``kappa`` and ``policy`` beside transformers' own arguments.
"""

from __future__ import annotations

from adaptivespec.integrations.transformers.decoding import generate
from adaptivespec.integrations.transformers.drafters import load_drafter

__all__ = ["generate", "load_drafter"]
