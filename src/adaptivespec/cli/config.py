"""Configuration files: `--config FILE` (TOML, YAML or JSON) gives options their defaults.

Keys are the names of the options with hyphens or underscores. A table named after a command holds
options for that command alone. Flags beat ADAPTIVESPEC_* variables, which beat the file. A key that
is no option is an error.

    rule = "margin"
    kappa = 0.3
    stop = ["###"]
    [generate]
    trace = "steps.jsonl"
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from adaptivespec.core.errors import ConfigError

__all__ = ["apply_config", "read_config"]

COMMANDS = ("generate", "chat", "serve", "conform", "bench", "calibrate")
_NOT_CONFIGURABLE = {"help", "config", "model_argument", "prompt"}


def apply_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Callback of --config: read the file into the context's defaults before other options."""
    if path is not None:
        from adaptivespec.cli import display

        try:
            ctx.default_map = defaults_for(ctx, read_config(path))
        except ConfigError as error:
            display.error(str(error))
            raise typer.Exit(2) from None
    return path


def read_config(path: Path) -> dict[str, Any]:
    """The file's content; ConfigError(field="config") when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read {path}: {reason}", field="config", remedy="Name a TOML, YAML or JSON file"
        ) from error
    language, load = _LANGUAGES.get(path.suffix, ("TOML", tomllib.loads))
    try:
        content = load(text)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid {language}: {error}",
            field="config",
            remedy="A name ending in .json is read as JSON, in .yaml or .yml as YAML, any other as "
            "TOML",
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a table of options", field="config")
    return content


def _load_yaml(text: str) -> Any:
    """YAML's plain types; ValueError where it is not that."""
    import yaml  # type: ignore[import-untyped, unused-ignore]

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


_LANGUAGES: dict[str, tuple[str, Callable[[str], Any]]] = {
    ".json": ("JSON", json.loads),
    ".yaml": ("YAML", _load_yaml),
    ".yml": ("YAML", _load_yaml),
}


def defaults_for(ctx: typer.Context, content: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that concerns this command, as option defaults."""
    tables = {name: content[name] for name in COMMANDS if name in content}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"[{name}] must be a table of options", field="config")
    top = {key: value for key, value in content.items() if key not in COMMANDS}
    parameters = {
        str(parameter.name): parameter
        for parameter in ctx.command.params
        if parameter.name not in _NOT_CONFIGURABLE
    }
    defaults: dict[str, Any] = {}
    for key, value in [*top.items(), *tables.get(_command(ctx), {}).items()]:
        name = str(key).replace("-", "_")
        if name not in parameters:
            raise _unknown(key, parameters)
        if value is not None:
            defaults[name] = _fitting(key, value, parameters[name])
    return defaults


def _command(ctx: typer.Context) -> str:
    """The command's name; that of its group where it is the group's usual one."""
    name = str(ctx.command.name)
    return name if name in COMMANDS or ctx.parent is None else str(ctx.parent.command.name)


def _fitting(key: str, value: Any, parameter: Any) -> Any:
    """A file's value in the form in which the command line would give it."""
    repeatable = bool(getattr(parameter, "multiple", False))
    if repeatable and isinstance(value, dict):
        return [f"{name}={_spelled(key, item)}" for name, item in value.items()]
    if repeatable:
        return [_spelled(key, item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, (list, dict)):
        raise ConfigError(f"{key} takes one value, not {value!r}", field="config")
    if isinstance(value, bool) != bool(getattr(parameter, "is_flag", False)):
        wanted = "true or false" if getattr(parameter, "is_flag", False) else "a value, no flag"
        raise ConfigError(f"{key} takes {wanted}, not {value!r}", field="config")
    return value if isinstance(value, (bool, int, float)) else _spelled(key, value)


def _spelled(key: str, item: Any) -> str:
    try:
        return item if isinstance(item, str) else json.dumps(item)
    except (TypeError, ValueError):  # a date, say, or a list that holds itself
        raise ConfigError(
            f"{key} takes text or a number, not {item!r}",
            field="config",
            remedy="Put it in quotes where text is meant",
        ) from None


def _unknown(key: Any, parameters: Mapping[str, Any]) -> ConfigError:
    near = difflib.get_close_matches(str(key).replace("-", "_"), parameters, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return ConfigError(
        f"unknown key {key!r}",
        field="config",
        remedy=f"{hint}Legal keys: {', '.join(sorted(parameters))}",
    )
