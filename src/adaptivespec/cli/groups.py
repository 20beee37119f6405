"""Options as dataclasses: `@grouped` turns a function of option groups into a typer command.

    @app.command()
    @grouped
    def generate(ctx: typer.Context, model: ModelOptions, output: OutputOptions) -> None: ...

Every field of a group becomes one parameter of the command (its type is an `Annotated` with a
`typer.Option` or `typer.Argument`), and the function receives the groups filled in. Field names
must be unique over the groups of a command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

__all__ = ["grouped"]


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A function with one flat parameter per field of its dataclass parameters."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            flat.extend(_parameters_of(groups[name]))
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            flat.append(parameter.replace(kind=keyword, annotation=hints[name]))

    @functools.wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**own)
        function(**values)

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    del command.__wrapped__  # typer must see the flat signature
    return command


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default
