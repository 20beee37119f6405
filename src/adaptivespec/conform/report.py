"""Reports in files: JSON for programs, Markdown for people, JUnit XML for build servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from adaptivespec.conform.case import Outcome, Verdict
from adaptivespec.conform.run import Report

__all__ = ["as_json", "write_report"]


def as_json(report: Report) -> dict[str, Any]:
    """A dictionary of JSON values."""
    return {
        "server": report.url,
        "model": report.model,
        "owned_by": report.owned_by,
        "lossless": report.lossless,
        "complete": report.complete,
        "remark": report.remark,
        "counts": {verdict.value: report.count(verdict) for verdict in Verdict},
        "cases": [_case(outcome) for outcome in report.outcomes],
    }


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.json, report.md and junit.xml into `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "report.json": json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n",
        "report.md": _markdown(report),
        "junit.xml": _junit(report),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def _case(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    failure = {
        "sent": outcome.sent,
        "came": outcome.came,
        "required": outcome.required,
        "curl": outcome.curl,
    }
    return {
        "id": case.id,
        "title": case.title,
        "verdict": outcome.verdict.value,
        "detail": outcome.detail,
        "finds": case.finds,
        "seen": list(case.seen),
        "seconds": round(outcome.seconds, 3),
        **(failure if outcome.verdict is Verdict.failed else {}),
    }


def _markdown(report: Report) -> str:
    lines = [
        "# Conformance",
        "",
        f"{report.model} at {report.url}{f', {report.owned_by}' if report.owned_by else ''}: "
        f"{report.summary()}.",
        "",
    ]
    if report.remark:
        lines += [f"Not complete: {report.remark}.", ""]
    failures = [o for o in report.outcomes if o.verdict in (Verdict.failed, Verdict.error)]
    for outcome in failures:
        lines += [f"## {outcome.case.id}", "", f"{outcome.case.title}.", ""]
        if outcome.verdict is Verdict.error:
            lines += [outcome.detail, ""]
            continue
        lines += [
            f"* sent: {_inline(outcome.sent)}",
            f"* came: {_inline(outcome.came)}",
            f"* required: {_inline(outcome.required)}",
            f"* finds: {outcome.case.finds}"
            + (f"; seen in {', '.join(outcome.case.seen)}" if outcome.case.seen else ""),
            "",
            *(["````sh", outcome.curl, "````", ""] if outcome.curl else []),
        ]
    lines += ["## All cases", "", "| case | verdict | what has to hold | remark |"]
    lines.append("|---|---|---|---|")
    lines += [
        f"| {o.case.id} | {o.verdict.value} | {_cell(o.case.title)} | {_cell(o.detail)} |"
        for o in report.outcomes
    ]
    return "\n".join(lines) + "\n"


def _inline(text: str) -> str:
    return f"`` {text} ``" if text else "-"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _junit(report: Report) -> str:
    skipped = (Verdict.refused, Verdict.not_applicable)
    suite = ElementTree.Element(
        "testsuite",
        name="adaptivespec conform",
        tests=str(len(report.outcomes)),
        failures=str(report.count(Verdict.failed)),
        errors=str(report.count(Verdict.error)),
        skipped=str(sum(report.count(verdict) for verdict in skipped)),
        time=f"{sum(outcome.seconds for outcome in report.outcomes):.3f}",
    )
    for outcome in report.outcomes:
        element = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"conform.{outcome.case.group}",
            name=outcome.case.id,
            time=f"{outcome.seconds:.3f}",
        )
        kind = {Verdict.failed: "failure", Verdict.error: "error"}.get(outcome.verdict)
        if outcome.verdict in skipped:
            kind = "skipped"
        if kind is not None:
            child = ElementTree.SubElement(element, kind, message=_plain(outcome.detail))
            child.text = _plain(outcome.curl) or None
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """Text without the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or (c >= " " and not 0xFFFE <= ord(c) <= 0xFFFF))
