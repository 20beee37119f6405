import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.eval.errors import RunError
from adaptivespec.eval.rows import Place, Row, RowFile, read_rows
from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tasks.base import Grade

text = st.text(max_size=20)
answers = st.builds(
    Answer,
    text=text,
    finish_reason=st.sampled_from(["stop", "length"]),
    completion_tokens=st.integers(0, 9),
    seconds=st.floats(0, 9),
    pieces=st.none() | st.lists(text, max_size=3),
    kinds=st.none() | st.text("epb", max_size=3),
    error=st.none() | text,
)
grades = st.none() | st.builds(Grade, st.booleans(), text, st.sampled_from(["graded", "unparsed"]))


def row(index: int, **values) -> Row:
    return Row(Place("quality", 0, "capitals", index, "plain"), 0, Answer(**values))


@given(st.builds(Row, st.just(Place("speed", 2, "t", 4, "a")), st.integers(0, 5), answers, grades))
def test_a_row_survives_its_line(one):
    assert Row.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_line_cut_short_is_dropped_and_written_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path) as file:
        file.add(row(0, text="one"))
        file.add(row(1, text="twö"))
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[1]) + 1):
        path.write_bytes(whole[:-cut])
        with RowFile(path) as file:
            assert [r.place.index for r in file.rows] == [0]
            file.add(row(1, text="twö"))
        assert path.read_bytes() == whole


def test_a_place_is_filled_once(tmp_path):
    with RowFile(tmp_path / "rows.jsonl") as file:
        file.add(row(0))
        with pytest.raises(ValueError, match="already"):
            file.add(row(0))


@pytest.mark.parametrize("line", ['{"phase": "speed"}', "[]", "nonsense", '{"arm": 1}'])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    good = json.dumps(row(0).to_json())
    path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(RunError, match="line 2"):
        list(read_rows(path))
