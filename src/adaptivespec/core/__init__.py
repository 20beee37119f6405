"""Arrays in, arrays out: trees, laws, verdicts, commits and statistics. Imports nothing of ours.

Names are loaded on first use, so that the errors and registries can be had without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.core.commit import Commit as Commit
    from adaptivespec.core.commit import StopState as StopState
    from adaptivespec.core.law import Law as Law
    from adaptivespec.core.sampling import Sampler as Sampler
    from adaptivespec.core.sampling import SamplingParams as SamplingParams
    from adaptivespec.core.stats import Statistics as Statistics
    from adaptivespec.core.trace import StepTrace as StepTrace
    from adaptivespec.core.tree import DraftTree as DraftTree
    from adaptivespec.core.verdict import Choice as Choice
    from adaptivespec.core.verdict import Kind as Kind
    from adaptivespec.core.verdict import Verdict as Verdict

_HOME = {
    "Choice": "verdict",
    "DraftTree": "tree",
    "Kind": "verdict",
    "Law": "law",
    "Sampler": "sampling",
    "SamplingParams": "sampling",
    "Statistics": "stats",
    "StepTrace": "trace",
    "StopState": "commit",
    "Verdict": "verdict",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
