"""The real SGLang on a CPU: scripts/sglang_cpu.sh. Without SGLang all of this is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from harness.pool import Pool
from harness.scenarios import scenarios

pytest.register_assert_rewrite("harness.compare")

HERE = Path(__file__).parent
PATIENCE = 900  # seconds a test may wait for its runs, and for those before them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(PATIENCE))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not _installed():
        pytest.skip("sglang is not installed; scripts/sglang_cpu.sh runs these tests")


@cache
def _installed() -> bool:
    # Not by import: a folder of this name on the path would do for that.
    try:
        return bool(metadata.version("sglang"))
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="session")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    """Results of engines by name. All that the selected tests are marked with start right away."""
    folder = tmp_path_factory.mktemp("sglang")
    pool = Pool(scenarios(folder), folder / "runs")
    marks = (mark for item in request.session.items for mark in item.iter_markers("runs"))
    pool.announce(name for mark in marks for name in mark.args)
    yield pool
    pool.close()
