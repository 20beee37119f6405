"""commit against a reference that decodes the whole output from scratch after every token."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from naive_reference import FAST, settings

from adaptivespec.core.commit import StopState, commit, flush
from adaptivespec.core.sampling import SamplingParams

MANY = settings(FAST, max_examples=250)
EOS = 0
FFFD = "\ufffd"

EURO, SMILE = "€".encode(), "😀".encode()
FIXED = [
    b"",  # EOS, a special token: no text
    b"",  # another special token
    *(b"a", b"b", b"c", b"ab", b"bc", b"aab", b" "),
    *("é".encode(), EURO, EURO[:1], EURO[1:], EURO[:2], EURO[2:]),
    *(SMILE, SMILE[:1], SMILE[1:2], SMILE[2:], SMILE[:3], SMILE[3:]),
    *(b"\xff", b"\xc3", b"\xa9", b"a\xe2", b"\x82\xacb", FFFD.encode()),
]
pieces = st.lists(st.binary(max_size=3), max_size=6).map(lambda extra: FIXED + extra)
stops = st.lists(st.text("abc é€😀", min_size=1, max_size=4), max_size=3, unique=True).map(tuple)


@st.composite
def requests(draw):
    """A vocabulary, a token sequence, stop conditions, and a way to cut the sequence into runs."""
    vocab = draw(pieces)
    ids = st.integers(0, len(vocab) - 1)
    plain = st.integers(1, len(vocab) - 1)  # mostly no EOS, or every output would be short
    broken = st.sampled_from([i for i, piece in enumerate(vocab) if piece[:1] > b"\x7f"])
    tokens = draw(
        st.one_of(
            st.lists(plain, max_size=40),
            st.lists(ids, max_size=40),
            st.lists(broken, max_size=60),
            st.lists(st.sampled_from([2, 3, 4, 5]), max_size=40),
        )
    )
    limit = draw(st.integers(1, 60))
    params = SamplingParams(
        max_tokens=limit,
        min_tokens=draw(st.integers(0, min(limit, 12))),
        stop=draw(stops),
        stop_token_ids=tuple(draw(st.lists(ids, max_size=1))),
        ignore_eos=draw(st.booleans()),
    )
    cuts = draw(st.lists(st.integers(1, 9), min_size=len(tokens), max_size=len(tokens)))
    return vocab, tokens, params, cuts


def decoder(vocab):
    return lambda ids: b"".join(vocab[i] for i in ids).decode("utf-8", "replace")


def reference(vocab, tokens, params):
    """(tokens for the user, tokens produced, reason, matched, text), decoding from scratch."""
    decode = decoder(vocab)
    stop_ids = params.stop_ids(frozenset({EOS}))
    for n in range(1, len(tokens) + 1):
        token = tokens[n - 1]
        if n >= params.min_tokens and token in stop_ids:
            return tokens[: n - 1], n, "stop", token, decode(tokens[: n - 1])
        if n >= params.min_tokens:
            before = decode(tokens[: n - 1]).rstrip(FFFD)
            text = decode(tokens[:n]).rstrip(FFFD)
            matches = [
                (start + len(string), start, string)
                for string in params.stop
                for start in range(len(text))
                if text.startswith(string, start) and start + len(string) > len(before)
            ]
            if matches:
                _, start, string = min(matches)
                return tokens[:n], n, "stop", string, text[:start]
        if n >= params.max_tokens:
            return tokens[:n], n, "length", None, decode(tokens[:n])
    return tokens, len(tokens), None, None, decode(tokens)


def stream(state, tokens, cuts):
    """Commit the tokens in runs of the given lengths; what came out, and the last state."""
    out, texts, produced, position, reason, matched = [], [], 0, 0, None, None
    for size in cuts:
        run = tokens[position : position + size]
        if not run or reason:
            break
        done = commit(run, state)
        out += done.tokens
        texts.append(done.text)
        produced += done.kept
        position += size
        reason, matched, state = done.finish_reason, done.matched_stop, done.state
        assert state.produced == produced
        assert done.kept == len(run) or reason
    return out, produced, reason, matched, texts, flush(state), state


@MANY
@given(requests())
def test_commit_is_the_reference_however_the_tokens_are_cut(request):
    vocab, tokens, params, cuts = request
    want = reference(vocab, tokens, params)
    start = StopState.start(params, frozenset({EOS}), decoder(vocab))
    for sizes in (cuts, [1] * len(tokens), [max(len(tokens), 1)]):
        out, produced, reason, matched, texts, rest, _ = stream(start, tokens, sizes)
        assert (out, produced, reason, matched) == (list(want[0]), *want[1:4])
        assert "".join(texts) + rest == want[4]


@MANY
@given(requests())
def test_shown_text_is_never_taken_back(request):
    vocab, tokens, params, cuts = request
    start = StopState.start(params, frozenset({EOS}), decoder(vocab))
    full = reference(vocab, tokens, params)[4]
    state, shown, position = start, "", 0
    for size in cuts:
        run = tokens[position : position + size]
        if not run:
            break
        done = commit(run, state)
        shown, state, position = shown + done.text, done.state, position + size
        assert full.startswith(shown)
        if done.finish_reason:
            break
        # what is held is no longer than a stop string less one character
        assert len(state.held) < max((len(string) for string in params.stop), default=1)


@MANY
@given(requests())
def test_the_window_and_the_work_stay_small(request):
    vocab, tokens, params, cuts = request
    calls = []

    def counting(ids):
        calls.append(len(ids))
        return decoder(vocab)(ids)

    start = StopState.start(params, frozenset({EOS}), counting)
    produced = stream(start, tokens, cuts)[1]
    assert len(calls) <= 2 * produced + 1
    # special tokens after an open character are kept; all else leaves the window in time
    if all(vocab[token] for token in tokens):
        assert max(calls, default=0) <= 24


@FAST
@given(requests(), st.integers(0, 40))
def test_the_future_does_not_change_the_past(request, more):
    """Tokens after the end of the output do not exist, whatever they are."""
    vocab, tokens, params, _ = request
    start = StopState.start(params, frozenset({EOS}), decoder(vocab))
    one = commit(tokens, start)
    if one.finish_reason:
        two = commit([*tokens, *([2] * more)], start)
        assert one == two


@FAST
@given(st.text(max_size=30), st.lists(st.integers(1, 6), min_size=120, max_size=120))
def test_a_byte_fallback_decoder_gives_the_text_back(text, cuts):
    """Bytes as tokens; a run that is no UTF-8 as a whole is shown broken byte by byte."""

    def fallback(ids):
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return FFFD * len(ids)

    params = SamplingParams(max_tokens=1000)
    start = StopState.start(params, frozenset(), fallback)
    *_, texts, rest, _ = stream(start, list(text.encode()), cuts)
    assert "".join(texts) + rest == text


@FAST
@given(st.lists(st.sampled_from([" one", " two", "", "s", " "]), max_size=25))
def test_a_decoder_that_strips_the_first_space(words):
    def strips(ids):
        return "".join(words[i] for i in ids).removeprefix(" ")

    params = SamplingParams(max_tokens=1000)
    state = dataclasses.replace(StopState.start(params, frozenset(), strips))
    ids = list(range(len(words)))
    *_, texts, rest, _ = stream(state, ids, [1] * len(ids))
    assert "".join(texts) + rest == strips(ids)
