"""What the GPU check makes of the engines' answers."""

from __future__ import annotations

import math
from itertools import takewhile

import pytest
from gpu import checks, report
from gpu.checks import Check
from hypothesis import given
from hypothesis import strategies as st


def answer(tokens, *, prompt=0, gaps=None, kappa=1.0, temperature=0.0, verifications=1, **more):
    """An answer as serve.py writes it."""
    return {
        "prompt": prompt,
        "token_ids": tokens,
        "tokens": len(tokens),
        "gaps": gaps if gaps is not None else [1.0] * len(tokens),
        "regrets": [0.0] * len(tokens),
        "verifications": verifications,
        "finish": "length",
        "adaptivespec": {"lossless": kappa >= 1, "num_promoted_tokens": 0},
        "sampling_params": {
            "temperature": temperature,
            "custom_params": {"adaptivespec": {"kappa": kappa}},
        },
        **more,
    }


def engine(**passes):
    """The result of an engine that did these passes."""
    return {
        "passes": {name: {"timed": None, "answers": rows} for name, rows in passes.items()},
        "server": {"disable_overlap_schedule": False},
        "started": 1.0,
        "seconds": 2.0,
        "error": None,
        "log": "x.log",
    }


def result_of(name, results, device="cuda", tie=0.25):
    rows = {row.name: row for row in checks.judge(results, 0.2, tie, device)}
    return rows[name]


class TestTies:
    def test_equal_answers_have_no_difference(self):
        assert checks.first_difference(answer([1, 2]), answer([1, 2])) is None

    def test_the_gap_is_that_of_the_first_difference(self):
        reference = answer([1, 2, 3], gaps=[5.0, 0.1, 7.0])
        assert checks.first_difference(reference, answer([1, 9, 9])) == (0, 1, 0.1)

    def test_a_text_that_goes_on_behind_the_reference_is_no_tie(self):
        assert checks.first_difference(answer([1]), answer([1, 2])).gap == math.inf

    def test_a_text_that_ends_early_differs_where_the_reference_goes_on(self):
        reference = answer([1, 2], gaps=[5.0, 0.2])
        assert checks.first_difference(reference, answer([1])) == (0, 1, 0.2)

    @given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
    def test_it_is_where_the_common_prefix_ends(self, one, two):
        same = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
        )
        found = checks.first_difference(answer(one), answer(two))
        assert (found is None) == (one == two)
        assert found is None or found.position == same

    def test_the_widest_gap_decides(self):
        reference = [answer([1], gaps=[0.1]), answer([1], prompt=1, gaps=[0.5])]
        other = [answer([2]), answer([2], prompt=1)]
        holds, text = checks.same_tokens(reference, other, 0.25)
        assert not holds
        assert "0 of 2 answers equal" in text
        assert "0.500" in text
        assert checks.same_tokens(reference, other[:1], 0.25)[0]

    def test_no_answers_are_no_agreement(self):
        assert not checks.same_tokens([answer([1])], [], 0.25)[0]


class TestKappa:
    def test_tokens_below_their_own_kappa_fail(self):
        mine = answer([1, 2], kappa=0.5, regrets=[0.0, 0.6])
        assert checks.within_kappa([mine], 0.01)[0]
        assert not checks.within_kappa([answer([1, 2], kappa=0.5, regrets=[0.0, 0.8])], 0.01)[0]

    def test_swapped_kappas_are_noticed(self):
        lossy = answer([1], kappa=0.05, regrets=[2.0])
        strict = answer([1], kappa=1.0, regrets=[0.0])
        assert checks.within_kappa([lossy, strict], 0.01)[0]
        swapped = [{**lossy, "regrets": [0.0]}, {**strict, "regrets": [2.0]}]
        assert not checks.within_kappa(swapped, 0.01)[0]

    def test_a_kappa_that_is_never_used_shows_nothing(self):
        assert not checks.within_kappa([answer([1], kappa=0.2)], 0.01)[0]


class TestAcceptLength:
    def test_the_first_token_belongs_to_no_verification(self):
        rows = [answer([1] * 10, verifications=3), answer([1] * 4, verifications=3)]
        assert checks.accept_length(rows) == 2.0

    def test_without_verifications_there_is_none(self):
        assert checks.accept_length([answer([1, 2], verifications=None)]) is None


class TestJudge:
    def test_what_was_not_run_is_skipped_with_the_reason(self):
        rows = checks.judge({}, 0.2, 0.25, "cuda")
        assert {row.status for row in rows} == {"skipped"}
        assert all(row.detail for row in rows)

    def test_an_engine_that_failed_fails_once_and_its_checks_say_why(self):
        broken = {**engine(), "error": "stopped after 5 s"}
        rows = checks.judge({"static": broken}, 0.2, 0.25, "cuda")
        assert [row.name for row in rows if row.status == "fail"] == [
            "ADAPTIVESPEC, one triple: starts and ends"
        ]
        row = result_of("strict, one triple, is reported lossless", {"static": broken})
        assert row == (row.name, "skipped", "engine static: stopped after 5 s")

    def test_a_pass_left_out_for_time_is_skipped(self):
        late = engine()
        late["passes"]["strict"] = {"timed": None, "skipped": "out of time"}
        row = result_of("strict, dcs, is reported lossless", {"dcs": late})
        assert (row.status, row.detail) == ("skipped", "engine dcs: out of time")

    def test_strict_must_equal_plain_decoding(self):
        name = "strict, one triple, gives the tokens of no speculation"
        plain = engine(alone=[answer([1, 2, 3], gaps=[9, 9, 9])])
        same, other = engine(strict=[answer([1, 2, 3])]), engine(strict=[answer([1, 2, 4])])
        assert result_of(name, {"plain": plain, "static": same}).status == "pass"
        assert result_of(name, {"plain": plain, "static": other}).status == "fail"

    def test_only_the_greedy_ones_of_a_mixed_batch_are_compared(self):
        plain = engine(alone=[answer([1]), answer([2], prompt=1)])
        mixed = engine(temperatures=[answer([1]), answer([7], prompt=1, temperature=1.0)])
        row = result_of(
            "greedy requests among sampled ones are strict", {"plain": plain, "dcs": mixed}
        )
        assert (row.status, row.detail) == ("pass", "1 of 1 answers equal")

    def test_a_strict_answer_with_a_promotion_is_not_lossless(self):
        lying = answer([1], adaptivespec={"lossless": True, "num_promoted_tokens": 1})
        silent = answer([1], adaptivespec=None)
        name = "strict, dcs, is reported lossless"
        assert result_of(name, {"dcs": engine(strict=[answer([1])])}).status == "pass"
        assert result_of(name, {"dcs": engine(strict=[lying])}).status == "fail"
        assert result_of(name, {"dcs": engine(strict=[silent])}).status == "fail"

    def test_an_account_that_lacks_a_figure_fails_and_ends_nothing(self):
        short = answer([1], adaptivespec={"num_promoted_tokens": 0})
        row = result_of("strict, dcs, is reported lossless", {"dcs": engine(strict=[short])})
        assert (row.status, row.detail) == ("fail", "cannot be judged: KeyError('lossless')")

    def test_margin_must_promote_and_lengthen(self):
        name = "margin raises the accept length, dcs"
        strict = [answer([1] * 9, verifications=4)]
        some = {"lossless": False, "num_promoted_tokens": 2}
        longer = [answer([1] * 9, verifications=2, adaptivespec=some)]
        unused = [answer([1] * 9, verifications=2)]
        assert result_of(name, {"dcs": engine(strict=strict, margin=longer)}).status == "pass"
        assert result_of(name, {"dcs": engine(strict=strict, margin=unused)}).status == "fail"
        shorter = [{**longer[0], "verifications": 5}]
        assert result_of(name, {"dcs": engine(strict=strict, margin=shorter)}).status == "fail"

    def test_lossy_answers_may_part_on_a_gpu_and_not_in_float32(self):
        name = "several kappas in one batch equal single requests"
        alone = [answer([1], kappa=1.0), answer([2], prompt=1, kappa=0.5)]
        batch = [answer([1], kappa=1.0), answer([3], prompt=1, kappa=0.5)]
        results = {"static": engine(**{"kappas alone": alone, "kappas together": batch})}
        assert result_of(name, results, "cuda").status == "pass"
        assert result_of(name, results, "cpu").status == "fail"
        strict = [answer([5], kappa=1.0), batch[1]]
        results = {"static": engine(**{"kappas alone": alone, "kappas together": strict})}
        assert result_of(name, results, "cuda").status == "fail"

    def test_the_same_triple_accepts_as_much_as_stock(self):
        name = "strict, one triple, accepts as much as stock EAGLE3"
        stock = engine(strict=[answer([1] * 101, verifications=40)])
        like = engine(strict=[answer([1] * 101, verifications=41)])
        worse = engine(strict=[answer([1] * 101, verifications=44)])
        assert result_of(name, {"static": like, "stock": stock}).status == "pass"
        assert result_of(name, {"static": worse, "stock": stock}).status == "fail"

    def test_dcs_must_have_states_and_switch_between_them(self):
        name = "triples were captured and are switched, dcs"

        def dcs(states, *triples):
            rows = [answer([1], adaptivespec={"triples": {triple: 3}}) for triple in triples]
            return {"dcs": {**engine(strict=rows, margin=rows), "states": states}}

        state = {"triple": [6, 1, 7], "seconds": 2.0, "gigabytes": 0.5}
        row = result_of(name, dcs([state, state], "6,1,7", "3,4,4"))
        assert (row.status, row.detail) == (
            "pass", "2 triples in 4.0 s and 1.00 GB; 2 were drafted"
        )  # fmt: skip
        assert result_of(name, dcs([], "6,1,7", "3,4,4")).status == "fail"
        assert result_of(name, dcs([state], "6,1,7")).status == "fail"

    def test_overlap_must_not_have_been_switched_off(self):
        off = {**engine(), "server": {"disable_overlap_schedule": True}}
        assert result_of("overlap scheduling is on", {"dcs": engine()}).status == "pass"
        assert result_of("overlap scheduling is on", {"dcs": off}).status == "fail"
        assert result_of("overlap scheduling is on", {"dcs": off}, "cpu").status == "skipped"

    @pytest.mark.parametrize(
        ("statuses", "code"),
        [("pass skipped", 0), ("pass fail", 1), ("skipped", 1), ("", 1)],
    )
    def test_the_exit_status_needs_something_that_ran(self, statuses, code):
        assert checks.exit_status([Check("x", each, "") for each in statuses.split()]) == code


class TestSpeed:
    def test_medians_over_repeats_and_pooled_accept_length(self):
        timed = {
            str(repeat): {
                "timed": {"kappa": 0.2, "batch": 1, "repeat": repeat},
                "seconds": seconds,
                "answers": [answer([1] * 11, verifications=5)],
            }
            for repeat, seconds in enumerate([1.0, 2.0, 11.0])
        }
        timed["late"] = {"timed": {"kappa": 0.2, "batch": 1, "repeat": 3}, "skipped": "out of time"}
        (row,) = checks.speed({"dcs": {"passes": timed}, "stock": {"skipped": "x", "passes": {}}})
        assert row["tokens_per_s"] == 5.5
        assert row["accept_length"] == 2.0
        assert row["repeats"] == 3

    def test_the_table_compares_within_a_batch_size(self):
        rows = [
            {"engine": name, "kappa": kappa, "batch": batch, "repeats": 1,
             "tokens_per_s": speed, "accept_length": None}
            for name, kappa, batch, speed in
            [("plain", None, 1, 10.0), ("stock", None, 1, 20.0), ("dcs", 0.2, 1, 30.0),
             ("dcs", 1.0, 16, 99.0)]
        ]  # fmt: skip
        lines = report.speed(rows, "cuda").splitlines()
        assert lines[-2].split()[-5:] == ["30.0", "3.00", "1.50", "-", "1"]
        assert lines[-1].split()[-5:] == ["99.0", "-", "-", "-", "1"]
        assert "30.0" not in report.speed(rows, "cpu")
