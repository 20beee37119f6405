"""What is wrong in a configuration or a request is said by name, and nothing else breaks."""

from __future__ import annotations

import pytest

from harness.compare import assert_same
from harness.run import RunFailed
from harness.scenarios import BAD_REQUESTS


@pytest.mark.runs("tiny tree")
@pytest.mark.parametrize("field", BAD_REQUESTS)
def test_a_bad_request_is_refused_with_the_field(runs, field):
    answer = runs["tiny tree"]["bad"][list(BAD_REQUESTS).index(field)]
    assert answer.error is not None
    assert answer.error.startswith(f"{field}: ")


@pytest.mark.runs("tiny tree", "tiny plain")
def test_the_engine_answers_after_bad_requests(runs):
    assert_same(runs["tiny tree"]["after bad"], runs["tiny plain"]["prompts"])


@pytest.mark.runs("misconfigured")
def test_a_bad_setting_stops_the_start_and_is_named(runs):
    with pytest.raises(RunFailed, match=r"ConfigError: ADAPTIVESPEC_CONFIG\.signal"):
        runs["misconfigured"]


@pytest.mark.runs("misplaced")
def test_an_argument_that_cannot_be_served_stops_the_start_and_is_named(runs):
    with pytest.raises(RunFailed, match="ConfigError: --enable-custom-logit-processor"):
        runs["misplaced"]
