"""docs/calibration.md: its tables are what the code computes."""

from __future__ import annotations

import re

import pytest

from adaptivespec.calibrate.certificate import Certificate, Data, KappaTest, Settings
from adaptivespec.calibrate.fit import Budget, prompts_needed
from adaptivespec.calibrate.losses import LOSSES
from adaptivespec.eval.prompts_task import GRADERS


@pytest.fixture(scope="module")
def guide(root):
    return (root / "docs" / "calibration.md").read_text(encoding="utf-8")


def table(guide: str, title: str) -> list[list[str]]:
    """The rows of the table under a header line that begins like `title`, the header first."""
    lines = guide.split(f"| {title}")[1].split("\n\n")[0]
    rows = [line for line in f"| {title}{lines}".splitlines() if not line.startswith("|---")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_prompts_needed(guide):
    for row in table(guide, "budget |")[1:]:
        limit = float(row[0].rstrip("%")) / 100
        needed = [prompts_needed(Budget("harm", limit, c)) for c in (0.9, 0.95, 0.99)]
        needed.append(prompts_needed(Budget("drop", limit, 0.95)))
        assert [int(cell) for cell in row[1:]] == needed


def test_prompts_that_may_be_lost(guide):
    header, *rows = table(guide, "prompts | 1%")
    for row in rows:
        n = int(row[0])
        for limit, cell in zip(header[1:], row[1:], strict=True):
            budget = Budget("harm", float(limit.rstrip("%")) / 100)
            most = -1 if cell == "-" else int(cell)
            verdicts = [
                budget.p_value([1.0] * lost + [0.0] * (n - lost)) <= budget.delta
                for lost in (most, most + 1)
                if lost >= 0
            ]
            assert verdicts == ([False] if most < 0 else [True, False])


def test_every_field_is_explained(guide):
    text = guide.split("## The certificate")[1]
    named = set(re.findall(r"`([a-z_]+)`", text))
    for model in (Certificate, Data, KappaTest, Settings):
        assert set(model.model_fields) <= named


def test_every_loss_and_grader_is_there(guide):
    assert [row[0].split("`")[1] for row in table(guide, "`--loss`")[1:]] == list(LOSSES)
    assert [row[0].strip("`") for row in table(guide, "`--grade`")[1:]] == list(GRADERS)
