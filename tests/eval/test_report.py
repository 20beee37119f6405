"""The files of a report."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser

import pytest

from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.errors import RunError
from adaptivespec.eval.report import write_report
from adaptivespec.eval.report.disagreements import readings
from adaptivespec.eval.report.hostile import cell, visible
from adaptivespec.eval.rows import Place, Row
from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tasks.base import Grade
from fakes import bench_rows

NOT_A_NUMBER = re.compile(r"(?<![A-Za-z])([nN]a[nN]|[iI]nf|Infinity|None)(?![A-Za-z])")
HOSTILE = '<script>alert(1)</script> & "quoted" \x00\x1b[31m \x7f \u202eabc \ud800 | `x` ]( '


class Page(HTMLParser):
    """Counts elements and keeps texts and addresses."""

    void = ("meta", "input", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words, self.ids, self.links = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[k] for k in ("href", "src", "xlink:href") if k in found]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    settings = bench_rows.settings(items=8)
    folder = tmp_path_factory.mktemp("runs") / "whole"
    bench_rows.write(folder, settings, bench_rows.rows(settings))
    write_report(folder)
    return folder


def run(tmp_path, settings, rows):
    bench_rows.write(tmp_path / "run", settings, rows)
    return write_report(tmp_path / "run"), tmp_path / "run"


def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def texts(folder):
    """What a reader sees of each file."""
    yield (folder / "summary.csv").read_text(encoding="utf-8")
    yield (folder / "report.md").read_text(encoding="utf-8")
    yield " ".join(page(folder).words)


def test_every_file_is_written(folder):
    assert (folder / "frontier.png").read_bytes().startswith(b"\x89PNG")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "settings.json", "rows.jsonl", "summary.csv", "report.md", "report.html", "frontier.png"
    }  # fmt: skip


def test_the_table_has_a_line_for_each_arm_and_task(folder):
    with (folder / "summary.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(bench_rows.ARMS) * 3
    plain = lines[0]
    assert (plain["arm"], plain["task"], plain["speedup"]) == ("plain", "json", "")
    assert float(lines[-1]["speedup_low"]) < float(lines[-1]["speedup"])


def test_the_page_stands_alone(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = Page(text)
    assert found.open == []
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert "@import" not in text
    assert found.tags.count("svg") == 5
    assert len(text.encode()) < 1_500_000


def test_every_accuracy_difference_has_its_detectable_difference(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    heads = [line for line in text.splitlines() if line.startswith("|") and "difference, p" in line]
    assert heads
    assert all("detectable" in line or "arm less control" in line for line in heads)
    assert all("detectable" in line for line in heads)


def test_every_arm_says_whether_it_is_lossless(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    glance = text.split("## Arms at a glance")[1].split("## ")[0]
    for name, (_, rate, _) in bench_rows.ARMS.items():
        assert f"| {name} | {'lossy' if rate else 'lossless'} |" in glance


def test_tables_of_markdown_are_whole(folder):
    widths: list[int] = []
    for line in (folder / "report.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_the_same_rows_give_the_same_bytes(folder, tmp_path):
    settings = bench_rows.settings(items=8)
    _, again = run(tmp_path, settings, bench_rows.rows(settings))
    for name in ("summary.csv", "report.md", "report.html", "frontier.png"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_nothing_is_not_a_number(folder):
    for text in texts(folder):
        assert not NOT_A_NUMBER.search(text)


@pytest.mark.parametrize(
    "phases", [("quality",), ("speed",), ("noise",), ("tune",), ("quality", "speed")]
)
def test_runs_that_lack_phases(tmp_path, phases):
    settings = bench_rows.settings(
        tasks=("json",), items=2, arms=("plain", "strict/dcs", "fly/dcs")
    )
    _, folder = run(tmp_path, settings, bench_rows.rows(settings, phases=phases))
    for text in texts(folder):
        assert not NOT_A_NUMBER.search(text)


def test_one_item_and_one_arm(tmp_path):
    settings = bench_rows.settings(tasks=("json",), items=1, arms=("plain",), restarts=1)
    summary, folder = run(tmp_path, settings, bench_rows.rows(settings))
    assert len(summary.headline()) == 1
    assert not (folder / "frontier.png").exists()
    for text in texts(folder):
        assert not NOT_A_NUMBER.search(text)


def test_no_rows_at_all(tmp_path):
    summary, folder = run(tmp_path, bench_rows.settings(items=2), [])
    assert len(summary.headline()) == len(bench_rows.ARMS)
    assert "No arm could be compared" in (folder / "report.md").read_text(encoding="utf-8")


def hostile_rows(arms):
    for number, arm in enumerate(arms):
        answer = Answer(
            text=HOSTILE,
            finish_reason="stop",
            completion_tokens=2,
            token_ids=[1, number],
            pieces=[HOSTILE, f"{HOSTILE}\nline {number}"],
            kinds="ep",
            margins=[0.25],
        )
        yield Row(Place("quality", 0, "json", 0, arm), 0, answer, Grade(number == 0, HOSTILE))


def test_what_a_model_writes_stays_text(tmp_path):
    arms = ("plain", "margin:0.2/dcs")
    settings = bench_rows.settings(
        tasks=("json",), items=1, arms=arms, targets={"engine": HOSTILE.replace("\ud800", "")}
    )
    _, folder = run(tmp_path, settings, hostile_rows(arms))
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert page(folder).tags.count("script") == 1
    for name in ("report.html", "report.md", "summary.csv"):
        content = (folder / name).read_text(encoding="utf-8")
        assert not set(content) & {"\x00", "\x1b", "\x7f", "\u202e"}
    assert "<script" not in (folder / "report.md").read_text(encoding="utf-8").replace("\\<", "")
    assert '<mark title="promoted, margin 0.250" data-margin="0.25">' in text


def test_blanks_of_answers_are_kept(tmp_path):
    arms = ("plain", "margin:0.2/dcs")
    settings = bench_rows.settings(tasks=("json",), items=1, arms=arms)
    rows = list(hostile_rows(arms))
    for row in rows:
        row.answer.pieces = ["  two", "\n\n\tthree "]
    _, folder = run(tmp_path, settings, rows)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert '<span class="same">  two</span><mark' in text
    assert ">\n\n\tthree </mark></div>" in text


def test_surrogates_can_be_written():
    assert visible("a\ud800b") == "a\ufffdb"
    visible("\udfff\uffff").encode()


def test_cells_of_markdown_cannot_leave_their_cell():
    assert cell("a|b\nc") == "a\\|b c"
    assert "](" not in cell("[x](javascript:y)")


def test_readings_are_bounded_and_begin_with_other_grades():
    settings = bench_rows.settings(items=60)
    found = readings(Samples.of(settings, bench_rows.rows(settings)))
    assert len(found) == 60
    flags = [reading.differs for reading in found]
    assert flags == sorted(flags, reverse=True)
    assert {reading.arm for reading in found} >= {"fly/dcs", "margin:0.2/dcs"}


def test_long_answers_are_cut_to_keep_the_page_small(tmp_path):
    settings = bench_rows.settings(tasks=("json",), items=12, arms=("plain", "fly/dcs"), restarts=0)
    rows = bench_rows.rows(settings)
    for row in rows:
        row.answer.pieces = ["<&>"] * 2_000
        row.answer.kinds = "p" * 2_000
        row.answer.margins = [0.5] * 2_000
    _, folder = run(tmp_path, settings, rows)
    assert (folder / "report.html").stat().st_size < 1_500_000


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"settings\.json"):
        write_report(tmp_path)
    bench_rows.settings().write(tmp_path / "settings.json")
    with pytest.raises(RunError, match=r"rows\.jsonl"):
        write_report(tmp_path)
