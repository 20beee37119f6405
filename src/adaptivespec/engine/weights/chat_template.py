"""Chat templates, rendered as by Hugging Face, in a sandbox, since they come with the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.engine.weights.jsonfile import read_json

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.parser import Parser

__all__ = ["check_messages", "find_template", "render"]

_DEFAULT = "default"


def find_template(directory: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template of a model directory, or None.

    chat_template.jinja comes first, then chat_template.json, then ``config``
    (tokenizer_config.json), which may name several: the one called "default" is meant.
    """
    try:
        return (directory / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"cannot be read ({error})", field=str(directory / "chat_template.jinja")
        ) from error
    source = read_json(directory / "chat_template.json", missing_ok=True).get("chat_template")
    template = config.get("chat_template") if source is None else source
    if isinstance(template, list):
        template = next(
            (
                entry.get("template")
                for entry in template
                if isinstance(entry, dict) and entry.get("name") == _DEFAULT
            ),
            None,
        )
    if template is not None and not isinstance(template, str):
        raise CheckpointError("chat_template is not a string", field=str(directory))
    return template


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """``messages`` as a list of {"role", "content"} with string values.

    Raises:
        ConfigError(field="messages"): empty, not a list, or an item without those two strings;
        names the item.
    """
    remedy = 'Give a list such as [{"role": "user", "content": "Hello"}]'
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigError(
            f"a {type(messages).__name__} where a list of messages belongs",
            field="messages",
            remedy=remedy,
        )
    if not messages:
        raise ConfigError("the list is empty", field="messages", remedy=remedy)
    checked = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ConfigError(
                f"item {index} is a {type(message).__name__}, not an object",
                field="messages",
                remedy=remedy,
            )
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise ConfigError(
                    f"item {index}: {key} is missing or not a string",
                    field="messages",
                    remedy=remedy,
                )
        if not message["role"]:
            raise ConfigError(f"item {index}: role is empty", field="messages", remedy=remedy)
        checked.append(dict(message))
    return checked


def render(source: str, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
    """Render the template ``source`` with ``messages`` and further variables
    (add_generation_prompt, bos_token ...).

    Raises:
        ConfigError(field="messages"): bad messages, or the template refuses them or cannot be
        rendered.
    """
    from jinja2.exceptions import TemplateError

    checked = check_messages(messages)
    try:
        return _compile(source).render(messages=checked, **variables)
    except TemplateError as error:
        problem = f"the model's chat template refuses them: {error.message or type(error).__name__}"
        raise ConfigError(
            problem,
            field="messages",
            remedy="Check the roles and their order, or pass a raw prompt",
        ) from error
    except (
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ConfigError(
            f"the model's chat template fails on them ({type(error).__name__}: {error})",
            field="messages",
            remedy="Check the roles and their order, or pass a raw prompt",
        ) from error


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks the assistant's text for training; here it only prints it."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # the output is a prompt, no HTML
        extensions=[loopcontrols, Generation],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # local time, as templates expect it
