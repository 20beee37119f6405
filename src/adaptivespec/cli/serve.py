"""`adaptivespec serve`: OpenAI's interface over the embedded engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from adaptivespec.cli import display
from adaptivespec.cli.decoding import SpeculationOptions
from adaptivespec.cli.errors import INTERRUPTED, guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import CommonOptions, ModelOptions
from adaptivespec.cli.serve_options import ServeOptions
from adaptivespec.core.errors import AdaptiveSpecError

if TYPE_CHECKING:
    from adaptivespec.engine import Engine
    from adaptivespec.serve.settings import ServeSettings, Speculation

__all__ = ["EPILOG", "serve"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec serve

adaptivespec serve --rule margin:0.3 --port 8080

ADAPTIVESPEC_API_KEY=secret adaptivespec serve ./my-llama --draft-model ./my-head --host 0.0.0.0

[bold]Asking it[/bold]

curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
-d '{"messages": \\[{"role": "user", "content": "Hello"}], "kappa": 0.3, "rule": "margin"}'

client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")

The page at http://127.0.0.1:8000/ shows an answer as it is drafted and verified; /metrics is for
Prometheus, and /health for whoever restarts it.
"""

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


@guarded
@grouped
def serve(
    model: ModelOptions,
    server: ServeOptions,
    speculation: SpeculationOptions,
    common: CommonOptions,
) -> None:
    """Serve a model with OpenAI's interface, and a page where speculation is seen.

    Requests share the engine's passes. A request may name its own rule, kappa and policy; what is
    given here serves those that do not. SIGTERM and Ctrl-C let answers under way end; a second one
    does not.
    """
    _check_extra()
    server.check()
    model, speculation = server.with_vllm(model, speculation)
    speculation.check_policy()
    speculation.make_rule()
    server.check_certificate(speculation)
    from adaptivespec.serve.run import Server, bind

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    bound = bind(server.host, server.port)
    with bound:
        from adaptivespec.serve.app import create_app
        from adaptivespec.serve.service import Service

        with display.progress(common.quiet) as progress:
            engine = model.load(progress)
            if engine.drafter is not None:
                engine.costs(progress=progress)
        settings = settings_of(server, speculation, engine)
        service = Service(
            engine,
            slots=server.max_num_seqs,
            queue=server.max_queue,
            adapt_to_load=server.adapt_to_load.value,
        )
        app = create_app(service, settings)
        service.start()
        running = Server(
            app,
            service,
            bound,
            drain_timeout=server.drain_timeout,
            on_ready=lambda port: announce(server, settings, port, common.quiet),
            on_drain=lambda: _say_drain(server, service.running + service.waiting, common.quiet),
        )
        try:
            whole = running.run()
        finally:
            service.close()
    engine.close()
    if not whole:
        raise typer.Exit(INTERRUPTED)


def settings_of(
    server: ServeOptions, speculation: SpeculationOptions, engine: Engine
) -> ServeSettings:
    """What the options mean for the app."""
    from adaptivespec.serve.access import is_loopback
    from adaptivespec.serve.settings import ServeSettings

    temperature = server.temperature
    if temperature is None:
        certificate = speculation.certificate()
        temperature = 1.0 if certificate is None else certificate.settings.temperature
    return ServeSettings(
        model=server.served_model_name or engine.model_name,
        temperature=temperature,
        speculation=by_temperature(speculation, engine),
        api_keys=tuple(server.api_key),
        loopback=is_loopback(server.host),
        max_body_bytes=server.max_body_bytes,
    )


def by_temperature(
    speculation: SpeculationOptions, engine: Engine
) -> Callable[[float], Speculation]:
    """Rule and policy for requests of a temperature: a certificate holds at its own alone."""
    from adaptivespec.serve.settings import Speculation

    certificate = speculation.certificate()
    if certificate is None:
        always = _chosen(speculation)
        return lambda temperature: always
    certified = certificate.settings.temperature
    there = replace(_chosen(speculation.settled(engine, certified)), certified=True)
    if certificate.lossless:
        return lambda temperature: there
    elsewhere = Speculation("strict", *speculation.policy_choice())
    return lambda temperature: there if temperature == certified else elsewhere


def _chosen(speculation: SpeculationOptions) -> Speculation:
    from adaptivespec.serve.settings import Speculation

    return Speculation(speculation.make_rule(), *speculation.policy_choice())


def _check_extra() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise AdaptiveSpecError(
            f"serving needs {', '.join(missing)}, which is not installed",
            field="serve",
            remedy="pip install 'adaptivespec[serve]'",
        )


def announce(server: ServeOptions, settings: ServeSettings, port: int, quiet: bool) -> None:
    """Say where it is served, and how; that anybody may use it even when it is to be quiet."""
    if not settings.loopback and not settings.api_keys:
        display.note(
            f"warning: {server.host} can be reached from other machines, and there is no key: "
            "anybody may use this server. Give --api-key, or --host 127.0.0.1",
            style="bold yellow",
        )
    if quiet:
        return
    if not settings.loopback and settings.api_keys:
        display.note(f"{server.host} can be reached from other machines; they need a key")
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::", "") else server.host  # noqa: S104
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    rule = _rule_in_words(settings.speculation(settings.temperature))
    display.note(f"serving {settings.model} at {address}/v1", style="bold")
    display.note(f"rule {rule} · the page: {address}/ · Ctrl-C ends", style="dim")


def _rule_in_words(chosen: Speculation) -> str:
    """The rule in words, with whether it is lossless."""
    from adaptivespec.verify import make_rule

    rule = make_rule(chosen.rule)
    return f"{rule.label} ({'lossless' if rule.lossless else 'lossy'})"


def _say_drain(server: ServeOptions, left: int, quiet: bool) -> None:
    if not quiet and left:
        display.note(
            f"ending: {left} answers under way have {server.drain_timeout:g} s; again to end now"
        )
