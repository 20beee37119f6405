"""The engines that peers.py compares, behind one call.

An engine has a list of arms, ways to decode with it, of which "plain" is one. `generate(arm, ids,
tokens, emit)` decodes `tokens` tokens greedily after the prompt `ids`, hands them to `emit` in
lists as they come, and returns what it knows besides. What is optional is imported where it is
used: an ImportError, OSError or RuntimeError while an engine is made means that it is not here.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, Protocol

import peers_files as files

Emit = Callable[[list[int]], None]
PLAIN = "plain"
CONTEXT = 2048
"""Longest sequence, of the engines that want to know it beforehand."""


class Peer(Protocol):
    """An engine: its arms, and in words what it is."""

    about: str

    @property
    def arms(self) -> Sequence[str]: ...

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]: ...


class Ours:
    """The engine of this package; an arm is a rule and a policy: "strict/dcs"."""

    def __init__(self, backend: str, arms: Sequence[str], threads: int) -> None:
        import torch

        from adaptivespec import Engine, __version__

        self._engine = Engine.from_pretrained(backend=backend, threads=threads)
        self.arms = (PLAIN, *arms)
        self.about = (
            f"adaptivespec {__version__}, backend {backend}, {self._engine.dtype}, "
            f"torch {torch.__version__}"
        )
        for arm in arms:
            self._engine.prepare(arm.partition("/")[2])

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]:
        rule, _, policy = ("strict/none" if arm == PLAIN else arm).partition("/")
        stream = self._engine.stream(
            ids, rule=rule, policy=policy, max_tokens=tokens, ignore_eos=True
        )
        for chunk in stream:
            emit([token.token_id for token in chunk.tokens])
        return {"policy": stream.result.policy, "promoted": stream.result.stats.num_promoted_tokens}


class LlamaCppLibrary:
    """llama.cpp by its C interface: plain, and drafting chains with our head.

    It picks its kernels for this processor, unless `kernels` names others.
    """

    CHAINS: ClassVar = {"eagle3:2": 2, "eagle3:3": 3}
    arms: ClassVar = (PLAIN, *CHAINS)

    def __init__(self, weights: str, threads: int, kernels: str) -> None:
        from peers_chain import Chain
        from peers_llama import RELEASE, LlamaCpp

        model = {"Q4_1": files.q4_1, "Q8_0": files.q8_0}[weights]()
        libraries = files.llama_libraries()
        self._plain = LlamaCpp(libraries, model, CONTEXT, threads, kernels)
        head = files.eagle3_head()
        self._chain = Chain(libraries, model, head, CONTEXT, threads, kernels)
        self.about = (
            f"llama.cpp {RELEASE} ({files.PACKAGE}), {weights} weights, head in Q8_0; "
            f"{self._plain.system}"
        )

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]:
        if arm == PLAIN:
            for token in self._plain.greedy(ids, tokens):
                emit([token])
        else:
            for step in self._chain.generate(ids, tokens, self.CHAINS[arm]):
                emit(step)
        return {}


class LlamaCppServer:
    """llama.cpp's server in the package xllamacpp, where npm is not to be had: plain, and drafting
    chains with our head. Its build is for AVX2, whatever the processor has, and it never picks an
    end of text instead of going on after it.
    """

    EAGLE3: ClassVar = "eagle3:3"
    arms: ClassVar = (PLAIN, EAGLE3)

    def __init__(self, threads: int) -> None:
        import xllamacpp
        from peers_llama import features

        self._servers = {
            arm: self._serve(xllamacpp, threads, draft=arm == self.EAGLE3) for arm in self.arms
        }
        self.about = (
            f"llama.cpp's server in xllamacpp {version('xllamacpp')}, Q4_1 weights; "
            f"{features(xllamacpp.get_system_info())}"
        )

    def _serve(self, xllamacpp: Any, threads: int, draft: bool) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path = str(files.q4_1())
        params.n_ctx, params.n_parallel, params.verbosity = CONTEXT, 1, 0
        pools = [params.cpuparams, params.cpuparams_batch]
        if draft:
            speculative = params.speculative
            kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3
            speculative.types = [kind]
            speculative.draft.mparams.path = str(files.eagle3_head())
            speculative.draft.n_max = int(self.EAGLE3.partition(":")[2])
            pools += [speculative.draft.cpuparams, speculative.draft.cpuparams_batch]
        for pool in pools:
            pool.n_threads = threads
        return xllamacpp.Server(params)

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]:
        body = {
            "prompt": ids,
            "n_predict": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
            "stream": True,
        }
        request = urllib.request.Request(  # noqa: S310  a server of this process
            f"{self._servers[arm].listening_address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        timings: Mapping[str, Any] = {}
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                if "error" in event:
                    raise RuntimeError(event["error"])
                if event["stop"]:
                    timings = event["timings"]
                else:
                    emit(event["tokens"])
        accepted = timings.get("draft_n_accepted", 0)
        return {"steps": timings["predicted_n"] - accepted - 1}


class Transformers:
    """Hugging Face transformers in bfloat16: plain, and prompt lookup."""

    LOOKUP: ClassVar = "lookup:5"
    arms: ClassVar = (PLAIN, LOOKUP)

    def __init__(self, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(files.embedded(), dtype=torch.bfloat16)
        self._model.generation_config.eos_token_id = None  # as any other token
        self.about = f"transformers {version('transformers')}, bfloat16, torch {torch.__version__}"

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]:
        import torch

        options: dict[str, Any] = {}
        if arm == self.LOOKUP:
            options["prompt_lookup_num_tokens"] = int(self.LOOKUP.partition(":")[2])
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=tokens,
                do_sample=False,
                streamer=_Streamer(emit),
                **options,
            )
        return {}


class _Streamer:
    """A streamer of transformers; the first thing it is given is the prompt."""

    def __init__(self, emit: Emit) -> None:
        self._emit, self._seen_prompt = emit, False

    def put(self, value: Any) -> None:
        if self._seen_prompt:
            self._emit(value.flatten().tolist())
        self._seen_prompt = True

    def end(self) -> None:
        pass


class OpenVino:
    """OpenVINO GenAI, which reads the GGUF file itself."""

    arms: ClassVar = (PLAIN,)

    def __init__(self, threads: int) -> None:
        import openvino_genai

        self._genai = openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(
            str(files.q4_1()), "CPU", INFERENCE_NUM_THREADS=threads
        )
        self.about = f"openvino-genai {version('openvino-genai')}, Q4_1 weights"

    def generate(self, arm: str, ids: list[int], tokens: int, emit: Emit) -> dict[str, Any]:
        import numpy as np
        from openvino import Tensor

        genai = self._genai

        class Streamer(genai.StreamerBase):  # type: ignore[name-defined, misc]
            def write(self, token: int | list[int]) -> Any:
                emit([token] if isinstance(token, int) else list(token))
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        prompt = np.array([ids], np.int64)
        inputs = genai.TokenizedInputs(Tensor(prompt), Tensor(np.ones_like(prompt)))
        self._pipeline.generate(inputs, config, Streamer())
        return {}


def make(name: str, options: Mapping[str, Any]) -> Peer:
    """The engine of this name; `options` are "threads", our "arms" by backend and "kernels"."""
    threads, kernels = options["threads"], options["kernels"]
    makers: dict[str, Callable[[], Peer]] = {
        "native": lambda: Ours("native", options["arms"]["native"], threads),
        "torch": lambda: Ours("torch", options["arms"]["torch"], threads),
        "llama.cpp-q4_1": lambda: LlamaCppLibrary("Q4_1", threads, kernels),
        "llama.cpp-q8_0": lambda: LlamaCppLibrary("Q8_0", threads, kernels),
        "xllamacpp": lambda: LlamaCppServer(threads),
        "transformers": lambda: Transformers(threads),
        "openvino": lambda: OpenVino(threads),
    }
    return makers[name]()


DEFAULT = ("native", "llama.cpp-q4_1", "llama.cpp-q8_0", "openvino", "torch", "transformers")
NAMES = (*DEFAULT, "xllamacpp")


def measure(peer: Peer, arm: str, ids: list[int], tokens: int) -> dict[str, Any]:
    """One request: wall and CPU seconds until the first tokens, and from there to the end.

    CPU seconds are those of all threads of the process. A step is a pass that the tokens after the
    first came from; engines that cannot tell are taken to hand over a step's tokens together.
    """
    parts: list[list[int]] = []
    marks = [_now()]

    def emit(ids: list[int]) -> None:
        if ids:
            parts.append(ids)
            if len(marks) == 1:
                marks.append(_now())

    extra = peer.generate(arm, ids, tokens, emit)
    marks.append(_now())
    (wall0, cpu0), (wall1, cpu1), (wall2, cpu2) = marks
    return {
        "prefill_s": wall1 - wall0,
        "prefill_cpu_s": cpu1 - cpu0,
        "decode_s": wall2 - wall1,
        "decode_cpu_s": cpu2 - cpu1,
        "decoded": sum(map(len, parts[1:])),
        "steps": len(parts) - 1,
        "tokens": [token for part in parts for token in part],
        **extra,
    }


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
