"""llama.cpp as a target, through the package `xllamacpp`: its server, inside this process.

It reads the GGUF file itself and is asked over HTTP like any other server, with its cache of
earlier prompts off.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from adaptivespec.calibrate.identity import weights_at
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Ask
from adaptivespec.eval.targets.server import ServerTarget
from adaptivespec.eval.tasks.base import Item

__all__ = ["LlamaCppTarget"]

NAME = "llama.cpp"
CONTEXT = 4096
#: Filters that its server has on by default for sampling; off, as in our own requests.
BODY = {"cache_prompt": False, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
PROBE = "Say hello."


class LlamaCppTarget(ServerTarget):
    """A GGUF model in llama.cpp's server.

    Args:
        model: as for ``Engine.from_pretrained``: a GGUF file, or a directory with one; None for
            the embedded model.
        threads: of every pass; None leaves llama.cpp's own choice.
        cache_dir: where fetched models are kept.
        context: longest sequence in tokens.

    Raises:
        TargetError: xllamacpp is not installed, the model has no GGUF file or cannot be loaded, or
            its chat template makes another prompt than ours.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        threads: int | None = None,
        cache_dir: str | Path | None = None,
        context: int = CONTEXT,
    ) -> None:
        from adaptivespec.engine.tokens import Tokenizer
        from adaptivespec.engine.weights import resolve_model

        try:
            import xllamacpp
        except ImportError as error:
            raise TargetError(
                "is not installed", field="xllamacpp", remedy="pip install xllamacpp"
            ) from error
        found = resolve_model(model, cache_dir=cache_dir)
        file = _gguf(found.path)
        self._server = _serve(xllamacpp, file, threads, context)
        super().__init__(f"{self._server.listening_address}/v1", bodies={NAME: BODY})
        self.identity = {"model": weights_at(file, found.name).model_dump()}
        self.about = (
            f"llama.cpp in xllamacpp {version('xllamacpp')}, {file.name}, "
            f"{threads or 'its own number of'} threads, over HTTP; "
            f"{_features(xllamacpp.get_system_info())}"
        )
        self._check_prompt(Tokenizer.from_dir(found.path))

    def close(self) -> None:
        super().close()
        del self._server

    def _check_prompt(self, tokenizer: Any) -> None:
        """Ask once, and compare the number of tokens read with ours."""
        answer = self.answer(self.arms[0], Item("probe", 0, (PROBE,)), Ask(max_tokens=1))
        ours = len(tokenizer.apply_chat_template([{"role": "user", "content": PROBE}]))
        problem = answer.error
        if problem is None and answer.prompt_tokens != ours:
            problem = f"reads {answer.prompt_tokens} tokens where our chat template gives {ours}"
        if problem is not None:
            self.close()
            raise TargetError(problem, field=NAME, remedy="Leave this target out")


def _gguf(path: Path) -> Path:
    if path.suffix == ".gguf":
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise TargetError(
            f"holds {len(files)} GGUF files, and llama.cpp needs one",
            field=str(path),
            remedy="Give the .gguf file as the model",
        )
    return files[0]


def _serve(xllamacpp: Any, file: Path, threads: int | None, context: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel, params.verbosity = context, 1, 0
    if threads is not None:
        for pool in (params.cpuparams, params.cpuparams_batch):
            pool.n_threads = threads
    try:
        return xllamacpp.Server(params)
    except Exception as error:  # it has no types of its own
        raise TargetError(f"cannot load {file.name}: {error}", field=NAME) from error


def _features(info: str) -> str:
    """What of the processor its build uses, from llama.cpp's own line."""
    parts = (part.strip() for part in info.replace(":", "|").split("|"))
    return " ".join(part.removesuffix(" = 1") for part in parts if part.endswith(" = 1"))
