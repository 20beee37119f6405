"""`adaptivespec inspect`: what a checkpoint is, and whether a head fits a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptivespec.cli import display, tables
from adaptivespec.cli.errors import guarded

__all__ = ["EPILOG", "inspect_checkpoint"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec inspect ./my-head

adaptivespec inspect ./my-head --model meta-llama/Llama-3.1-8B-Instruct

adaptivespec inspect model.gguf --json

The exit code is 1 where tensors are missing or foreign, or where the head does not fit --model.
"""
_NAME_COLUMNS = 18
_UNITS = ((" G", 1e9), (" M", 1e6), (" k", 1e3), ("", 1))


@guarded
def inspect_checkpoint(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A model or a draft head: a directory, a file, or a hub id."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A target: says whether the head at PATH fits it."),
    ] = None,
    allow_pickles: Annotated[
        bool,
        typer.Option("--allow-pickles", help="Look into a head's .bin, at its tensors alone."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """Say what a checkpoint is: sizes, formats, what is missing, what runs it.

    Only configs and the headers of weights are read. Of a head it tells the dialect, the target
    layers it taps, how it normalises, what the target lends and which target it wants; --model
    says whether it fits, and every mismatch.
    """
    from adaptivespec.core.errors import ConfigError
    from adaptivespec.engine.inspection import Sizes, describe, fit
    from adaptivespec.engine.weights import resolve_model

    found, name = _resolve(path, allow_pickles)
    report = describe(found, name, allow_pickles)
    if model is not None:
        if report["kind"] != "head":
            raise ConfigError(
                f"{path} is a target itself",
                field="model",
                remedy="Give the head as PATH and the target as --model",
            )
        target = resolve_model(model)
        report["fit"] = fit(_config(found), Sizes.of(target.path, target.name))
    if as_json:
        tables.show_json(report)
    else:
        _show(report)
    if report["problems"] or not report.get("fit", {"fits": True})["fits"]:
        raise typer.Exit(1)


def _resolve(path: str, pickles: bool) -> tuple[Path, str]:
    """Where it lies, and a name to show; a head's weights file is taken as it is."""
    from adaptivespec.engine.weights import resolve_model

    local = Path(path)
    if local.is_file() and local.suffix in (".safetensors", ".bin"):
        return local.absolute(), local.name
    files = resolve_model(path, pickles=pickles)
    return files.path, files.name


def _config(path: Path) -> Any:
    from adaptivespec.draft.dialects import dialect_of
    from adaptivespec.draft.heads import HeadFiles

    files = HeadFiles.find(path)
    data = files.read_config()
    return dialect_of(data, str(files.config)).read(data, str(files.config))


def _show(report: Mapping[str, Any]) -> None:
    """A line for each fact on stdout; what is wrong, on stderr."""
    lines = _head_lines(report) if report["kind"] == "head" else _target_lines(report)
    title = f"{report['name']}: {'an EAGLE-3 head' if report['kind'] == 'head' else 'a target'}"
    tables.show_rows([{title: f"{name:{_NAME_COLUMNS}}{value}"} for name, value in lines])
    for problem in report["problems"]:
        display.note(problem)
    if report["kind"] == "head":
        _note_head(report)


def _note_head(report: Mapping[str, Any]) -> None:
    if not report["tensors_read"]:
        display.note(
            f"{report['weights']} is a pickle and was not read; `adaptivespec convert-head` with "
            "--allow-pickles makes a safetensors file of it"
        )
    for sentence in (report["proposal"] or {}).get("lost", []):
        display.note(f"without a counterpart here: {sentence}")
    match = report.get("fit")
    if match is None:
        return
    for problem in match["mismatches"]:
        display.note(f"does not fit {match['target']}: {problem}")
    for note in match["notes"]:
        display.note(note, style="dim")


def _head_lines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    wanted = report["target_wanted"]
    yield "dialect", f"{report['dialect']} ({report['dialect_title']})"
    yield "weights", _weights(report, report["weights"])
    yield "sizes", _sizes(report)
    yield "draft vocabulary", f"{report['draft_vocab_size']} of {report['vocab_size']}"
    taps = report["tap_layers"]
    yield (
        "taps",
        "entering layers 2, L // 2 and L - 3"
        if taps is None
        else f"entering layers {', '.join(map(str, taps))}",
    )
    yield "rope", _rope(report)
    for name, value in report["flags"].items():
        if value != name.startswith("use_"):
            yield "flag", f"{name} = {str(value).lower()}"
    if report["tensors_read"]:
        for key in ("missing", "unexpected"):
            if report[key]:
                yield key, ", ".join(report[key])
        yield "borrowed", ", ".join(report["borrowed"]) or "nothing"
    named = wanted["name"] or "a target"
    yield "wants", f"{named}, {wanted['vocab_size']} words, hidden {wanted['hidden_size']}"
    yield "runs on", _backends(report)
    if report["proposal"]:
        proposal = report["proposal"]
        yield (
            "proposal",
            f"{proposal['speculative_tokens']} tokens, verifier_accept_k "
            f"{proposal['verifier_accept_k']}, accept_tolerance {proposal['accept_tolerance']:g}",
        )
        yield "the same here", f"--rule {proposal['rule']} --policy {proposal['policy']}"
    if "fit" in report:
        match = report["fit"]
        taps = ", ".join(map(str, match["taps"] or ()))
        answer = f"yes, tapped where its layers {taps} begin" if match["fits"] else "no"
        yield "fits", f"{match['target']}: {answer}"


def _target_lines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "family", str(report["family"])
    yield "weights", _weights(report, report["format"])
    yield "layers", str(report["num_layers"])
    yield "sizes", _sizes(report)
    yield "vocabulary", str(report["vocab_size"])
    window = report.get("sliding_window")
    sees = "" if window is None else f", runs with --max-model-len of at most {window}"
    yield "context", f"{report['max_position_embeddings']}{sees}"
    if "rope_theta" in report:
        yield "rope", _rope(report)
    yield "tokenizer", report["tokenizer"] or "missing"
    yield "chat template", "yes" if report["chat_template"] else "none"
    yield "runs on", _backends(report)


def _weights(report: Mapping[str, Any], where: str) -> str:
    if "parameters" not in report:
        return where
    count = report["parameters"]
    unit, scale = next(u for u in _UNITS if count >= u[1])
    return f"{where}, {', '.join(report['dtypes'])}, {count / scale:.3g}{unit} parameters"


def _sizes(report: Mapping[str, Any]) -> str:
    parts = [f"hidden {report['hidden_size']}"]
    if "intermediate_size" in report:
        parts += [
            f"intermediate {report['intermediate_size']}",
            f"{report['num_heads']} heads of {report['head_dim']}",
            f"{report['num_kv_heads']} for keys and values",
        ]
    return ", ".join(parts)


def _rope(report: Mapping[str, Any]) -> str:
    scaling = report["rope_scaling"]
    kind = "" if scaling is None else f", {scaling.get('rope_type', scaling.get('type'))} scaling"
    return f"theta {report['rope_theta']:g}{kind}"


def _backends(report: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {answer}" for name, answer in report["backends"].items())
