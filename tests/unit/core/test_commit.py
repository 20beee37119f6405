import dataclasses

import pytest

from adaptivespec.core.commit import StopState, commit, flush
from adaptivespec.core.sampling import SamplingParams

EOS = 99
PIECES = {
    0: b"",  # a special token, skipped
    1: b"a",
    2: b"b",
    3: b"c",
    4: b"ab",
    5: b"xaby",
    6: "€".encode()[:2],
    7: "€".encode()[2:],
    8: b"\xff",
    9: b" hi\xe2",
    10: b"\x82\xac",
    EOS: b"</s>",
}


def decode(ids):
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")


def start(**params):
    return StopState.start(SamplingParams(**params), frozenset({EOS}), decode)


def feed(state, *runs):
    """Commit runs until one ends the output; the last commit, and the text with its flush."""
    text = ""
    for run in runs:
        done = commit(run, state)
        text, state = text + done.text, done.state
        if done.finish_reason:
            break
    return done, text + flush(state)


def test_eos_inside_an_accepted_run():
    done = commit([5, EOS, 7, 8, 9], start())
    assert (done.kept, done.tokens) == (2, (5,))
    assert (done.finish_reason, done.matched_stop) == ("stop", EOS)
    assert done.text + flush(done.state) == "xaby"
    assert done.state.produced == 2


def test_a_stop_id_ends_the_output_as_eos_does():
    done = commit([1, 3, 2], start(stop_token_ids=(3,)))
    assert (done.kept, done.tokens, done.matched_stop) == (2, (1,), 3)


def test_ignore_eos_runs_to_the_cap():
    done = commit([EOS] * 5, start(ignore_eos=True, max_tokens=4))
    assert (done.kept, done.tokens, done.finish_reason) == (4, (EOS,) * 4, "length")


@pytest.mark.parametrize("limit", range(1, 10))
def test_max_tokens_is_exact(limit):
    state, produced = start(max_tokens=limit), 0
    while True:
        done = commit([1] * 5, state)  # depth 4, all accepted, and the bonus
        produced += done.kept
        state = done.state
        if done.finish_reason:
            break
    assert (produced, done.finish_reason, done.matched_stop) == (limit, "length", None)
    assert state.produced == limit


def test_eos_at_max_tokens_is_a_stop():
    assert commit([1, EOS], start(max_tokens=2)).finish_reason == "stop"
    assert commit([1, 2], start(max_tokens=2, stop=("b",))).finish_reason == "stop"
    assert commit([1, 2], start(max_tokens=2)).finish_reason == "length"


def test_a_stop_string_across_tokens_of_one_run():
    done = commit([3, 1, 2, 3], start(stop=("ab",)))
    assert (done.kept, done.tokens, done.text) == (3, (3, 1, 2), "c")
    assert (done.finish_reason, done.matched_stop) == ("stop", "ab")
    assert flush(done.state) == ""


def test_a_stop_string_across_runs_is_never_shown():
    first = commit([3, 1], start(stop=("ab",)))
    assert (first.text, first.finish_reason) == ("c", None)  # "a" is held back
    second = commit([2, 3], first.state)
    assert (second.kept, second.text, second.matched_stop) == (1, "", "ab")


def test_what_was_held_back_is_shown_once_decided():
    first = commit([1], start(stop=("ab",)))
    second = commit([3], first.state)
    assert (first.text, second.text) == ("", "ac")


def test_a_stop_string_inside_one_token():
    done = commit([3, 5, 3], start(stop=("ab",)))
    assert (done.kept, done.tokens, done.text) == (2, (3, 5), "cx")


def test_the_string_completed_first_wins():
    done = commit([1, 2, 3], start(stop=("abc", "b")))
    assert (done.kept, done.text, done.matched_stop) == (2, "a", "b")
    done = commit([5], start(stop=("aby", "b")))  # "b" ends before "aby" does
    assert (done.text, done.matched_stop) == ("xa", "b")


def test_of_those_completed_together_the_one_that_starts_first_wins():
    done = commit([3, 1, 2], start(stop=("b", "ab")))
    assert (done.text, done.matched_stop) == ("c", "ab")


@pytest.mark.parametrize(("tokens", "ends"), [(1, True), (2, True), (3, False), (4, False)])
def test_min_tokens_lets_stop_strings_pass(tokens, ends):
    done = commit([1, 4], start(stop=("ab",), min_tokens=tokens))
    assert (done.finish_reason == "stop") is ends


def test_min_tokens_lets_stop_ids_pass():
    done = commit([EOS, 1, EOS, 1], start(min_tokens=3))
    assert (done.kept, done.tokens) == (3, (EOS, 1))


def test_an_ignored_stop_string_is_shown_at_once():
    assert commit([4], start(stop=("ab", "xyzw"), min_tokens=3)).text == "ab"


def test_an_ignored_stop_string_may_begin_a_later_one():
    done, text = feed(start(stop=("aa",), min_tokens=3), [1, 1], [1])
    assert (done.matched_stop, text) == ("aa", "a")


def test_a_character_is_never_shown_in_halves():
    first = commit([1, 6], start())
    assert first.text == "a"
    second = commit([7], first.state)
    assert second.text == "€"
    assert flush(second.state) == ""


def test_text_before_an_open_character_is_shown_and_searched():
    first = commit([9], start())
    assert first.text == " hi"
    assert commit([10], first.state).text == "€"
    done = commit([9, 10], start(stop=("hi",)))
    assert (done.kept, done.text) == (1, " ")


def test_flush_shows_bytes_that_never_became_a_character():
    done, text = feed(start(max_tokens=2), [1, 6])
    assert done.text == "a"
    assert text == decode([1, 6])


def test_flush_shows_what_was_held_for_a_stop_string():
    done, text = feed(start(max_tokens=2, stop=("abc",)), [1, 2])
    assert (done.text, text) == ("", "ab")
    done, text = feed(start(stop=("abc",)), [1, 2, EOS])
    assert (done.finish_reason, text) == ("stop", "ab")


@pytest.mark.parametrize("count", [1, 3, 4, 9, 10, 40])
def test_bytes_that_are_no_character_do_not_pile_up(count):
    state, text = start(max_tokens=100), ""
    for _ in range(count):
        done = commit([8], state)
        text, state = text + done.text, done.state
        assert len(state.ids) <= 9
    assert len(text) >= count - 3
    assert text + flush(state) == "\ufffd" * count
    done = commit([1], state)
    assert text + done.text == "\ufffd" * count + "a"


@pytest.mark.parametrize("broken", range(1, 12))
@pytest.mark.parametrize("special", range(12))
def test_special_tokens_after_broken_bytes_lose_nothing(broken, special):
    _, text = feed(start(max_tokens=100), [8] * broken, [0] * special, [1])
    assert text == "\ufffd" * broken + "a"
    _, text = feed(start(max_tokens=100), [8] * broken + [0] * special)
    assert text == "\ufffd" * broken
    _, text = feed(start(max_tokens=100), [6] + [0] * special, [7])
    assert text == "€"


def test_the_window_stays_small():
    state, sizes = start(max_tokens=1000), []

    def counting(ids):
        sizes.append(len(ids))
        return decode(ids)

    state = dataclasses.replace(state, decode=counting)
    for _ in range(100):
        state = commit([1, 0, 3, 5], state).state
    assert max(sizes) <= 4
    assert len(sizes) <= 2 * 400


def test_special_tokens_at_the_start_keep_their_place():
    def strips(ids):
        """A decoder that drops the space in front of the first word, as sentencepiece's does."""
        return "".join({0: "", 1: " one", 2: " two"}[i] for i in ids).removeprefix(" ")

    state = dataclasses.replace(start(max_tokens=100), decode=strips)
    done = commit([0, 1, 0, 2, 0, 0, 1], state)
    assert done.text + flush(done.state) == "one two one"
    done = commit([0, 1, *[0] * 20, 2], state)
    assert done.text + flush(done.state) == "one two"


def test_a_byte_fallback_decoder_that_revises_its_text():
    def fallback(ids):
        """Each id is a byte; a run that is no UTF-8 as a whole is shown broken byte by byte."""
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(ids)

    state = dataclasses.replace(start(max_tokens=100), decode=fallback)
    done = commit(list("😀😀€".encode()), state)
    assert done.text + flush(done.state) == "😀😀€"
    shown, state = "", dataclasses.replace(start(max_tokens=100), decode=fallback)
    for byte in "a😀😀€b".encode():
        done = commit([byte], state)
        shown, state = shown + done.text, done.state
    assert shown == "a😀😀€b"


def test_an_empty_run_changes_nothing():
    state = commit([1, 6], start(stop=("ab",))).state
    done = commit([], state)
    assert (done.kept, done.tokens, done.finish_reason, done.text) == (0, (), None, "")
    assert done.state == state


def test_nothing_is_committed_after_the_end():
    for run, params in (([EOS], {}), ([4], {"stop": ("ab",)}), ([1], {"max_tokens": 1})):
        done = commit(run, start(**params))
        with pytest.raises(ValueError, match="has ended"):
            commit([1], done.state)


def test_commit_is_pure():
    state = start(stop=("ab",), max_tokens=9)
    before = dataclasses.replace(state)
    run = [3, 1, 6]
    assert commit(run, state) == commit(run, state)
    assert (state, run) == (before, [3, 1, 6])
