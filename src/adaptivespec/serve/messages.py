"""The messages of a chat: text, from the roles that chat templates know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaptivespec.serve.errors import ApiError, refusal

__all__ = ["read_messages"]

#: "developer" is OpenAI's newer word for "system", which is what templates know.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_EMPTY: tuple[Any, ...] = (None, [], {})
#: What clients send back when they repeat an answer; only empty values mean nothing.
_REPEATED = {"refusal", "annotations", "audio", "tool_calls", "function_call", "reasoning_content"}


def read_messages(messages: Sequence[Any]) -> list[dict[str, str]]:
    """[{"role", "content"}], contents as text.

    Raises ApiError naming the message: another role, a part that is no text, a field that is not
    honoured.
    """
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: Any) -> dict[str, str]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise _refused(where, "must be an object with role and content")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        shown = repr(role[:40]) if isinstance(role, str) else "missing or no text"
        raise _refused(f"{where}.role", f"is {shown}; it must be one of {', '.join(ROLES)}")
    for name, value in message.items():
        if name in ("role", "content") or value is None:
            continue
        if not (name in _REPEATED and value in _EMPTY):
            raise _refused(f"{where}.{name[:60]}", "is not supported", "Leave it out")
    return {"role": ROLES[role], "content": _text(where, message.get("content"))}


def _text(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise _refused(f"{where}.content", "must be text or a list of text parts")
    return "".join(_part(f"{where}.content[{i}]", part) for i, part in enumerate(content))


def _part(where: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        shown = f" of type {kind[:40]!r}" if isinstance(kind, str) else ""
        raise _refused(where, f"is a part{shown}, and only text parts are supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise _refused(f"{where}.text", "must be text")
    extra = [name for name in part if name not in ("type", "text")]
    if extra:
        raise _refused(f"{where}.{extra[0][:60]}", "is not supported", "Leave it out")
    return text


def _refused(where: str, problem: str, remedy: str = "") -> ApiError:
    error = refusal(where, problem, remedy)
    error.param = "messages"
    return error
