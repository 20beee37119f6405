"""How models get onto the machine and into memory.

``resolve_model`` finds or fetches files, ``config.ModelConfig`` says what shape they have,
``load.load_weights`` reads them. Importing this package loads none of the heavy libraries.
"""

from adaptivespec.engine.weights.embedded import fetch_embedded
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent
from adaptivespec.engine.weights.resolve import ModelFiles, resolve_model
from adaptivespec.engine.weights.store import CachedModel, list_models, remove_model

__all__ = [
    "CachedModel",
    "ModelFiles",
    "ProgressCallback",
    "ProgressEvent",
    "fetch_embedded",
    "list_models",
    "remove_model",
    "resolve_model",
]
