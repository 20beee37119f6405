"""What all tests share: one torch thread, and skips with a reason for what is missing."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("network") is not None and (reason := _model_is_missing()):
        pytest.skip(reason)
    if item.get_closest_marker("shared") is not None and not SHARED_DATA.is_dir():
        pytest.skip(f"no data folder beside the checkout ({SHARED_DATA})")


@cache
def _model_is_missing() -> str | None:
    """Why the embedded model cannot be used, or None. Nothing is fetched here."""
    from adaptivespec.core.errors import AdaptiveSpecError
    from adaptivespec.engine.weights import resolve_model

    try:
        resolve_model(None, cache_dir=os.environ.get("ADAPTIVESPEC_CACHE"), local_files_only=True)
    except AdaptiveSpecError as error:
        return f"needs the embedded model (`adaptivespec models fetch`): {error}"
    return None


@pytest.fixture(scope="session")
def model_cache() -> str | None:
    """Where the embedded model is looked for; None is the default place."""
    return os.environ.get("ADAPTIVESPEC_CACHE")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data beside the checkout; for tests marked `shared`."""
    return SHARED_DATA
