"""What a server is told at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.verify.base import Rule

__all__ = ["ServeSettings", "Speculation"]


@dataclass(frozen=True)
class Speculation:
    """Rule and policy, as `Engine.job` takes them; kappa and rule options are in the rule.

    `certified` says that a certificate vouches for the two together, and for no other policy.
    """

    rule: str | Rule = "strict"
    policy: str = "auto"
    policy_options: Mapping[str, Any] | None = None
    certified: bool = False


def _strict(temperature: float) -> Speculation:
    return Speculation()


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of one server.

    Attributes:
        model: its name in the API.
        temperature: of requests that name none; 1 as with OpenAI.
        speculation: temperature -> rule and policy of requests that name none. A certificate holds
            at one temperature only.
        api_keys: any of them opens /v1; none leaves it open.
        loopback: bound to this machine only. Without a key, requests that reach it under another
            name are then refused: a page of somebody else's may not use it through its visitor.
        max_body_bytes: of a request.
        body_timeout: seconds that the body of a request may take to arrive.
        send_timeout: seconds that a client may accept nothing of its answer before it is cut off.
        most_nodes: largest draft tree a request may ask for.
        most_choices: answers that one request may ask for, over all its prompts.
    """

    model: str
    temperature: float = 1.0
    speculation: Callable[[float], Speculation] = _strict
    api_keys: tuple[str, ...] = ()
    loopback: bool = False
    max_body_bytes: int = 4 * 2**20
    body_timeout: float = 60.0
    send_timeout: float = 60.0
    most_nodes: int = 128
    most_choices: int = 64
