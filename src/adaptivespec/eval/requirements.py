"""What benchmarks need beyond the package itself, looked for before anything long is begun."""

from __future__ import annotations

from importlib.util import find_spec

from adaptivespec.core.errors import ConfigError

__all__ = ["require"]

STATISTICS = ("scipy", "matplotlib")
BY_TASK = {"math500": ("math_verify",)}


def require(tasks: tuple[str, ...] = ()) -> None:
    """Raise ConfigError unless statistics and plots can be made, and these tasks graded."""
    wanted = [*STATISTICS, *(module for task in tasks for module in BY_TASK.get(task, ()))]
    missing = [module.replace("_", "-") for module in wanted if find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not installed",
            field="eval",
            remedy="pip install 'adaptivespec[eval]'; in a checkout, scripts/setup.sh eval",
        )
