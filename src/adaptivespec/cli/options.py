"""Options that every command shares, and the one place where a command makes its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptivespec.cli.config import apply_config
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.engine import Engine

__all__ = [
    "Backend",
    "CommonOptions",
    "Dtype",
    "ModelOptions",
    "create_engine",
    "option",
]

MODEL, SPECULATION, SAMPLING, OUTPUT = "Model", "Speculation", "Sampling", "Output"


def create_engine(**arguments: Any) -> Engine:
    """Load an engine: the arguments of `Engine.from_pretrained`."""
    from adaptivespec.engine import Engine

    return Engine.from_pretrained(**arguments)


def _model_unless_argument(ctx: typer.Context, value: str | None) -> str | None:
    """--model, but the argument MODEL beats what the environment or a file says of it."""
    source = ctx.get_parameter_source("model")
    typed = source is not None and source.name == "COMMANDLINE"
    return value if typed or not ctx.params.get("model_argument") else None


class Backend(StrEnum):
    """Legal values of --backend."""

    torch = "torch"
    native = "native"
    auto = "auto"


class Dtype(StrEnum):
    """Legal values of --dtype; which of them a backend has is checked by the engine."""

    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"
    exact = "exact"


def option(*names: str, panel: str, help: str, env: str | None = None, **extra: Any) -> Any:
    """A typer option in a help panel, read from ADAPTIVESPEC_<env> too when env is given."""
    envvar = f"ADAPTIVESPEC_{env}" if env else None
    return typer.Option(*names, help=help, rich_help_panel=panel, envvar=envvar, **extra)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it is loaded."""

    model_argument: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A directory, a GGUF file or a hub id. Missing: the embedded SmolLM2-135M.",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            panel=MODEL,
            env="MODEL",
            help="The same as the argument MODEL.",
            callback=_model_unless_argument,
        ),
    ] = None
    draft_model: Annotated[
        str | None,
        option(
            "--draft-model",
            panel=MODEL,
            env="DRAFT_MODEL",
            help="What drafts: an EAGLE-3 head or a small model (a directory, a file or a hub id), "
            "ngram, or HEAD+ngram. Missing: the head that ships for the model, else ngram.",
        ),
    ] = None
    backend: Annotated[
        Backend,
        option(
            "--backend",
            panel=MODEL,
            env="BACKEND",
            help="What runs the model: torch, the compiled CPU engine, or auto: that one where it "
            "can.",
        ),
    ] = Backend.auto
    dtype: Annotated[
        Dtype,
        option(
            "--dtype",
            panel=MODEL,
            env="DTYPE",
            help="Precision. torch: auto, bfloat16, float32; native: auto, exact.",
        ),
    ] = Dtype.auto
    device: Annotated[
        str,
        option(
            "--device", panel=MODEL, env="DEVICE", help="Where the model runs: cpu, cuda or cuda:N."
        ),
    ] = "cpu"
    threads: Annotated[
        int | None,
        option("--threads", panel=MODEL, env="THREADS", help="CPU threads. Missing: torch's."),
    ] = None
    max_model_len: Annotated[
        int | None,
        option(
            "--max-model-len",
            panel=MODEL,
            env="MAX_MODEL_LEN",
            help="Context length in tokens. Missing: the model's own.",
        ),
    ] = None
    revision: Annotated[
        str | None,
        option(
            "--revision", panel=MODEL, env="REVISION", help="Branch, tag or commit of a hub id."
        ),
    ] = None
    hub_token: Annotated[
        str | None,
        typer.Option(
            "--hub-token",
            rich_help_panel=MODEL,
            envvar=["ADAPTIVESPEC_HUB_TOKEN", "HF_TOKEN"],
            help="Token for gated models of the hub.",
        ),
    ] = None
    cache_dir: Annotated[
        Path | None,
        option("--cache-dir", panel=MODEL, env="CACHE", help="Where fetched models are kept."),
    ] = None
    offline: Annotated[
        bool,
        option("--offline", panel=MODEL, env="OFFLINE", help="Never use the network."),
    ] = False

    def load(
        self, progress: Callable[[Any], None] | None = None, auto: Backend = Backend.auto
    ) -> Engine:
        """Load the engine that these options describe, on `auto` where they name no backend."""
        return create_engine(**self.arguments(auto), progress=progress)

    def arguments(self, auto: Backend = Backend.auto) -> dict[str, Any]:
        """Arguments of `Engine.from_pretrained`."""
        if self.model_argument and self.model and self.model_argument != self.model:
            raise ConfigError(
                f"two models are given: {self.model_argument!r} and {self.model!r}",
                field="model",
                remedy="Give MODEL or --model, not both",
            )
        return {
            "model": self.model_argument or self.model,
            "draft_model": self.draft_model,
            "backend": (auto if self.backend is Backend.auto else self.backend).value,
            "dtype": self.dtype.value,
            "device": self.device,
            "threads": self.threads,
            "max_model_len": self.max_model_len,
            "revision": self.revision,
            "cache_dir": self.cache_dir,
            "local_files_only": self.offline,
            "token": self.hub_token,
        }


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every command has."""

    config: Annotated[
        Path | None,
        option(
            "--config",
            panel=OUTPUT,
            env="CONFIG",
            help="TOML, YAML or JSON file with options; flags and ADAPTIVESPEC_* variables beat "
            "it.",
            is_eager=True,
            callback=apply_config,
            metavar="FILE",
        ),
    ] = None
    quiet: Annotated[
        bool,
        option(
            "--quiet", "-q", panel=OUTPUT, env="QUIET", help="No progress, notices or statistics."
        ),
    ] = False
    debug: Annotated[
        bool,
        option("--debug", panel=OUTPUT, env="DEBUG", help="Show the traceback of an error."),
    ] = False
