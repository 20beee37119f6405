"""Registries of rules and policies: lazy imports, validated options, errors that help."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from adaptivespec.core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class OptionInfo:
    """One option, described for a help table: its default value and what is legal."""

    name: str
    value: object
    bounds: str
    help: str

    @property
    def default(self) -> str:
        """The value as a user would type it."""
        return _show(self.value)


@dataclass(frozen=True)
class EntryInfo:
    """One registry entry, described for a help table.

    ``summary`` is the first line of its docstring ``doc``; ``formula`` and ``source`` are the
    class attributes of these names, empty where there are none.
    """

    name: str
    summary: str
    doc: str
    formula: str
    source: str
    options: tuple[OptionInfo, ...]


@dataclass(frozen=True)
class Spec:
    """A parsed ``name:value,key=value`` string."""

    name: str
    positional: tuple[object, ...]
    keywords: Mapping[str, object]


class Registry(Generic[T]):
    """Names to classes, imported when first asked for.

    A registered class has a nested pydantic model ``Options`` and a constructor that takes one;
    it may have a ``formula`` and a ``source``, one line each.

    Args:
        kind: what is registered, in one word; names the field in errors ("rule", "policy").
        entries: name -> "module:Class".
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def names(self) -> list[str]:
        """Registered names, in the order of registration."""
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def load(self, name: str) -> type[T]:
        """The class called ``name``; ConfigError listing the legal names otherwise."""
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        module, _, attribute = self._entries[name].partition(":")
        return cast("type[T]", getattr(import_module(module), attribute))

    def create(self, name: str, options: Mapping[str, object] | None = None) -> T:
        """An instance of ``name`` with validated options; ConfigError names field and bound."""
        cls = self.load(name)
        make = cast(Any, cls)
        return cast(T, make(self.validate(name, options)))

    def validate(self, name: str, options: Mapping[str, object] | None = None) -> BaseModel:
        """The Options of ``name`` filled from a mapping; ConfigError names field and bound."""
        model = options_model(self.load(name))
        try:
            return model.model_validate(dict(options or {}))
        except ValidationError as error:
            raise _config_error(self.kind, name, model, error) from None

    def resolve(self, spec: Spec, options: Mapping[str, object] | None = None) -> dict[str, object]:
        """Options of a parsed spec, positional ones by declaration order, merged with ``options``.

        Raises ConfigError when an option is given twice or there are too many positional values.
        """
        field = f"{self.kind}_options"
        names = list(options_model(self.load(spec.name)).model_fields)
        if len(spec.positional) > len(names):
            legal = ", ".join(names) or "none"
            raise ConfigError(
                f"'{spec.name}' takes at most {len(names)} options, got {len(spec.positional)}",
                field=field,
                remedy=f"Its options, in order: {legal}",
            )
        merged: dict[str, object] = {}
        pairs: list[tuple[str, object]] = list(zip(names, spec.positional, strict=False))
        for key, value in [*pairs, *spec.keywords.items(), *(options or {}).items()]:
            if key in merged and merged[key] != value:
                raise ConfigError(
                    f"given twice, as {merged[key]!r} and {value!r}", field=f"{field}.{key}"
                )
            merged[key] = value
        return merged

    def describe(self) -> list[EntryInfo]:
        """Every entry with its docstring and its options. Imports all of them."""
        return [self.describe_one(name) for name in self._entries]

    def describe_one(self, name: str) -> EntryInfo:
        """One entry with its docstring and its options; ConfigError when nobody registered it."""
        cls = self.load(name)
        model = options_model(cls)
        options = tuple(
            OptionInfo(
                name=key,
                value=info.get_default(call_default_factory=True),
                bounds=bounds(model, key),
                help=info.description or "",
            )
            for key, info in model.model_fields.items()
        )
        doc = inspect.getdoc(cls) or ""
        return EntryInfo(
            name=name,
            summary=doc.partition("\n")[0],
            doc=doc,
            formula=getattr(cls, "formula", ""),
            source=getattr(cls, "source", ""),
            options=options,
        )


def unknown_name(kind: str, name: str, legal: Iterable[str]) -> ConfigError:
    """The error for a name nobody registered: the legal ones, and the nearest of them."""
    names = list(legal)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return ConfigError(
        f"unknown {kind} '{name}'", field=kind, remedy=f"{hint}Legal: {', '.join(names)}"
    )


def options_model(cls: type[Any]) -> type[BaseModel]:
    """The nested Options model of a registered class."""
    return cast("type[BaseModel]", cls.Options)


def parse_spec(text: str, kind: str = "spec") -> Spec:
    """Read ``name``, ``name:1,2`` or ``name:key=value,...``; brackets group, values are JSON.

    >>> parse_spec("static:5,4,16").positional
    (5, 4, 16)
    """
    name, colon, rest = text.strip().partition(":")
    positional: list[object] = []
    keywords: dict[str, object] = {}
    items = _split(rest) if rest.strip() else []
    if not name or (colon and not items):
        raise ConfigError(
            f"cannot read '{text}'", field=kind, remedy="Write name, name:value or name:key=value"
        )
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            if keywords:
                raise ConfigError(f"'{item}' follows a key=value in '{text}'", field=kind)
            positional.append(_value(item))
        elif key.strip() in keywords:
            raise ConfigError(f"'{key.strip()}' is given twice in '{text}'", field=kind)
        else:
            keywords[key.strip()] = _value(value)
    return Spec(name.strip(), tuple(positional), keywords)


def split_specs(text: str, field: str, names: Iterable[str] = ()) -> list[str]:
    """The parts of "static:5,4,16; dcs" or "strict,margin:0.2,fly", each once.

    Semicolons separate; where there are none, a comma does when a name of ``names`` follows it.

    Raises ConfigError when there is no part.
    """
    known = set(names)
    if ";" in text:
        parts = text.split(";")
    else:
        parts = []
        for piece in text.split(","):
            head = piece.strip().partition(":")[0].partition("/")[0]
            if parts and head not in known:
                parts[-1] += "," + piece
            else:
                parts.append(piece)
    specs = [part.strip() for part in parts if part.strip()]
    if not specs:
        raise ConfigError("is empty", field=field, remedy="Separate several by semicolons")
    return list(dict.fromkeys(specs))


def spec_of(name: str, options: Mapping[str, object]) -> str:
    """The inverse of ``parse_spec``, for options given by key."""
    text = ",".join(f"{key}={_show(value)}" for key, value in options.items())
    return f"{name}:{text}" if text else name


def bounds(model: type[BaseModel], key: str) -> str:
    """The legal values of one option in words: an interval, a list of literals, or a type."""
    schema = model.model_json_schema()["properties"][key]
    choices = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    optional = len(choices) < len(schema.get("anyOf", [schema]))
    words = " or ".join(_bounds_of(part) for part in choices)
    return f"{words} or null" if optional else words


def _bounds_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    json_type = str(schema.get("type", "value"))
    kind = {"boolean": "true | false", "array": "list", "string": "text"}.get(json_type, json_type)
    low, low_open = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, high_open = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is None and low_open is None and high is None and high_open is None:
        return kind
    left = f"[{low:g}" if low is not None else "(-inf" if low_open is None else f"({low_open:g}"
    right = f"{high:g}]" if high is not None else "inf)" if high_open is None else f"{high_open:g})"
    return f"{kind} in {left}, {right}"


def _config_error(
    kind: str, name: str, model: type[BaseModel], error: ValidationError
) -> ConfigError:
    """The first pydantic error, in our words, with the field, the value and what is legal."""
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"]]
    field = ".".join([f"{kind}_options", *location])
    legal = list(model.model_fields)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], legal, n=1, cutoff=0.5)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        known = f"Options of '{name}': {', '.join(legal)}" if legal else f"'{name}' has no options"
        return ConfigError("unknown option", field=field, remedy=f"{hint}{known}")
    message = re.sub(r"^(Input should|Value error,) ", "", first["msg"])
    message = (
        message if first["type"] == "value_error" else f"must {message}, got {first['input']!r}"
    )
    top = location[0] if location else ""
    remedy = f"Legal: {bounds(model, top)}" if top in legal else None
    return ConfigError(message, field=field, remedy=remedy)


def _split(text: str) -> Sequence[str]:
    """Split at commas outside brackets, however deep."""
    items, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items]


def _value(text: str) -> object:
    """A JSON value where it is one (parentheses count as brackets), the plain text otherwise."""
    plain = text.strip()
    lowered = {"true": True, "false": False, "none": None, "null": None}
    if plain.lower() in lowered:
        return lowered[plain.lower()]
    try:
        return cast(object, json.loads(plain.replace("(", "[").replace(")", "]")))
    except ValueError:
        return plain


def _show(value: object) -> str:
    """A default as a user would type it."""
    return value if isinstance(value, str) else json.dumps(value)
