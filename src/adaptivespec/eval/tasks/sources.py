"""Where the items of public tasks come from: the user's folder, an installed package, the hub.

They are not in this package. Whatever is found is read to the end or refused with file and line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adaptivespec.eval.errors import DataError

__all__ = ["Record", "Source", "records"]


@dataclass(frozen=True)
class Source:
    """Where to look for the items of a task, in this order.

    Attributes:
        task: its name, for messages.
        files: names that the file may have in the user's folder, the usual one first.
        package: (module, path within it) of an installed package with the file.
        hub: (repository, kind, file) on the Hugging Face hub; kind is "dataset" or "space".
        fields: what each record must have, and of which type.
    """

    task: str
    files: tuple[str, ...]
    hub: tuple[str, str, str]
    fields: Mapping[str, type]
    package: tuple[str, str] | None = None


@dataclass(frozen=True)
class Record:
    """One record, and where it stands ("gsm8k_test.jsonl:12"), for messages."""

    place: str
    values: Mapping[str, Any]

    def bad(self, message: str) -> DataError:
        """The error that says what is wrong with this record."""
        return DataError(message, field=self.place, remedy="Use the file as it was published")


def records(source: Source, data: Path | None) -> Sequence[Record]:
    """All records of a task, in the order of the file.

    Args:
        source: where to look.
        data: the user's folder, which counts first.

    Raises:
        DataError: they are nowhere, or a record is not as it should be.
    """
    path = _in_folder(source, data) or _in_package(source) or _from_hub(source, data)
    rows = _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)
    if not rows:
        raise DataError("has no items", field=str(path), remedy="Use the file as it was published")
    for row in rows:
        for name, kind in source.fields.items():
            if not isinstance(row.values.get(name), kind):
                raise row.bad(f"'{name}' is missing or is no {_KINDS[kind]}")
    return rows


_KINDS = {str: "text", list: "list", int: "integer"}


def _in_folder(source: Source, data: Path | None) -> Path | None:
    if data is None:
        return None
    if not data.is_dir():
        raise DataError(
            "is no folder", field=str(data), remedy=f"Give --data a folder with {source.files[0]}"
        )
    return next((data / name for name in source.files if (data / name).is_file()), None)


def _in_package(source: Source) -> Path | None:
    """The file within an installed package, which is not imported."""
    if source.package is None:
        return None
    module, name = source.package
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / name).is_file():
            return path
    return None


def _from_hub(source: Source, data: Path | None) -> Path:
    repository, kind, name = source.hub
    looked = [f"no {' or '.join(source.files)} in {data}" if data else "no --data folder was given"]
    if source.package is not None:
        looked.append(f"the package '{source.package[0]}' is not installed")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        looked.append("huggingface-hub is not installed")
    else:
        try:
            return Path(hf_hub_download(repository, name, repo_type=kind))
        # Versions of the hub's client and of what it sends by have errors of their own.
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            looked.append(f"{repository} cannot be fetched from the hub ({reason[:200]})")
    raise DataError(
        "its items are not part of this package, and were not found: " + "; ".join(looked),
        field=source.task,
        remedy=f"Give --data DIR, a folder with {source.files[0]}, or let the hub be reached",
    )


def _read_lines(path: Path) -> list[Record]:
    opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    rows: list[Record] = []
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_record(f"{path}:{number}", line))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(
            f"cannot be read after line {number}: {error}",
            field=str(path),
            remedy="Fetch the file again",
        ) from error
    return rows


def _record(place: str, line: str) -> Record:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise Record(place, {}).bad(f"is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise Record(place, {}).bad("is no JSON object")
    return Record(place, values)


def _read_parquet(path: Path) -> list[Record]:
    try:
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise DataError(
            "reading what the hub gave needs pyarrow",
            field=path.name,
            remedy="`pip install pyarrow`, or give --data DIR with the items as JSON lines",
        ) from error
    rows = pyarrow.parquet.read_table(path).to_pylist()
    return [Record(f"{path}:{number}", row) for number, row in enumerate(rows, 1)]
