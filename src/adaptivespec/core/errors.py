"""Typed errors: each names its field, says what is wrong and, where known, what to do.

Nothing else is imported here, so that any layer can raise and catch these without cost.
"""

from __future__ import annotations


class AdaptiveSpecError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: what is wrong, without a full stop at the end.
        field: the option, file or tensor it is about.
        remedy: what the user can do about it.

    ``str(error)`` is ``"field: message. remedy"``, with the parts that were given.
    """

    def __init__(
        self, message: str, *, field: str | None = None, remedy: str | None = None
    ) -> None:
        self.message = message
        self.field = field
        self.remedy = remedy
        text = message if field is None else f"{field}: {message}"
        if remedy is not None:
            text = f"{text}. {remedy}"
        super().__init__(text)


class FallbackWarning(UserWarning):
    """Something slower serves in place of what was wished for; says why, and the remedy."""


class ConfigError(AdaptiveSpecError, ValueError):
    """An option is unknown or out of bounds; the message lists the legal values or the interval."""


class PromptError(AdaptiveSpecError, ValueError):
    """The prompt cannot be used, for example because it is empty."""


class ContextLengthError(PromptError):
    """The prompt, with the tokens asked for, does not fit into the context."""


class ModelNotFoundError(AdaptiveSpecError):
    """A path or hub name leads to no model."""


class CheckpointError(AdaptiveSpecError):
    """A checkpoint is corrupt or foreign: missing, unexpected or mis-shaped tensors, all listed."""


class DownloadError(AdaptiveSpecError):
    """A download failed."""


class ChecksumError(DownloadError):
    """A downloaded file is not the file that was published."""


class DiskFullError(AdaptiveSpecError):
    """There is no room for a file."""


class DeviceMemoryError(AdaptiveSpecError):
    """A device has no room for a model, its caches or a pass."""


class TreeError(AdaptiveSpecError, ValueError):
    """A draft tree breaks an invariant; the message names the node."""


class NumericalError(AdaptiveSpecError):
    """The target's logits hold NaN or +inf, or a row is all -inf: never an acceptance.

    Args:
        message: what was found.
        step: the decode step, counted from 0.
        node: the tree node whose row it was.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        node: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.step = step
        self.node = node
        super().__init__(message, field=field, remedy=remedy)
