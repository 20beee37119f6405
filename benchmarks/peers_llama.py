"""llama.cpp by its C interface, from the shared libraries of the npm package
`@node-llama-cpp/linux-x64`.

The structures below are those of `include/llama.h` and `include/ggml.h` of llama.cpp v0.5.0, which
version 3.22.1 of the package is built from (`_nlcBuildMetadata.json` beside the libraries says so).
Another release may lay them out otherwise, so any other is refused.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int8, c_int32, c_void_p
from pathlib import Path

import numpy as np

RELEASE = "v0.5.0"
CPU_DEVICE = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
MAX_THREADS = 512  # GGML_MAX_N_THREADS
LOG = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)


def features(text: str) -> str:
    """What is switched on in llama.cpp's line "CPU : AVX2 = 1 | FMA = 1 | "."""
    pairs = (item.split("=") for item in text.partition(":")[2].split("|") if "=" in item)
    return " ".join(name.strip() for name, value in pairs if value.strip() != "0")


class ModelParams(Structure):
    """llama_model_params"""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int),
        ("load_mode", c_int),
        ("lazy_mode", c_int),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParams(Structure):
    """llama_context_params"""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int),
        ("rope_scaling_type", c_int),
        ("pooling_type", c_int),
        ("attention_type", c_int),
        ("flash_attn_type", c_int),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int),
        ("type_v", c_int),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", ctypes.c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(Structure):
    """llama_batch"""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


class ThreadPoolParams(Structure):
    """ggml_threadpool_params"""

    _fields_ = (
        ("cpumask", c_bool * MAX_THREADS),
        ("n_threads", c_int),
        ("prio", c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", c_bool),
        ("paused", c_bool),
    )


class LlamaCpp:
    """One model and one context of `size` tokens on `threads` threads, kept in one thread pool.

    Everything else is as llama.cpp sets it by itself.

    Args:
        libraries: folder of libllama and its kernels.
        kernels: name of the build of the kernels ("zen4"); empty for llama.cpp's own choice.

    Raises:
        OSError, RuntimeError: no such release, library, model or memory; says which.
    """

    def __init__(
        self, libraries: Path, model: Path, size: int, threads: int, kernels: str = ""
    ) -> None:
        metadata = json.loads((libraries / "_nlcBuildMetadata.json").read_text(encoding="utf-8"))
        release = metadata["buildOptions"]["llamaCpp"]["release"]
        if release != RELEASE:
            raise RuntimeError(f"{libraries} holds llama.cpp {release}, not {RELEASE}")
        self._base = ctypes.CDLL(str(libraries / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        self._ggml = ctypes.CDLL(str(libraries / f"libggml.{RELEASE}.so"), ctypes.RTLD_GLOBAL)
        self._lib = ctypes.CDLL(str(libraries / f"libllama.{RELEASE}.so"))
        self._declare()
        self._log = LOG(lambda level, text, data: None)
        self._lib.llama_log_set(self._log, None)
        if not self._ggml.ggml_backend_dev_by_type(CPU_DEVICE):  # else another one loaded them
            self._load_kernels(libraries, kernels)
        self._lib.llama_backend_init()
        self._size, self._threads = size, threads
        self._pool = self._thread_pool()
        self._model, self._context = self._open(model)
        self._memory = self._lib.llama_get_memory(self._context)
        self._vocab = self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(self._model))

    @property
    def system(self) -> str:
        """The names of the instruction sets in use, in llama.cpp's words."""
        return features(self._lib.llama_print_system_info().decode())

    def greedy(self, prompt: Sequence[int], tokens: int) -> Iterator[int]:
        """The next `tokens` ids after `prompt`, ends of text included, one by one."""
        self._lib.llama_memory_clear(self._memory, True)
        ids = list(prompt)
        for _ in range(tokens):
            array = (c_int32 * len(ids))(*ids)
            self._decode(self._context, self._lib.llama_batch_get_one(array, len(ids)))
            ids = [self._best(self._context, -1)]
            yield ids[0]

    def _load_kernels(self, libraries: Path, name: str) -> None:
        if not name:
            self._ggml.ggml_backend_load_all_from_path(str(libraries).encode())
            return
        path = libraries / f"libggml-cpu-{name}.so"
        if not path.exists():
            known = sorted(p.stem.rpartition("-")[2] for p in libraries.glob("libggml-cpu-*.so"))
            raise RuntimeError(f"no kernels {name!r}; there are {', '.join(known)}")
        if not self._ggml.ggml_backend_load(str(path).encode()):
            raise RuntimeError(f"the kernels {name!r} do not run on this processor")

    def _open(self, path: Path, other: int | None = None) -> tuple[int, int]:
        """A model and its context, which may look at another one."""
        model = self._lib.llama_model_load_from_file(
            str(path).encode(), self._lib.llama_model_default_params()
        )
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path.name}")
        params = self._lib.llama_context_default_params()
        params.n_ctx = self._size
        params.n_threads = params.n_threads_batch = self._threads
        params.ctx_other = other
        context = self._lib.llama_init_from_model(model, params)
        if not context:
            raise RuntimeError(f"llama.cpp makes no context of {self._size} tokens")
        self._lib.llama_attach_threadpool(context, self._pool, None)
        return model, context

    def _decode(self, context: int, batch: Batch) -> None:
        if code := self._lib.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode returned {code}")

    def _best(self, context: int, row: int) -> int:
        """The most probable token of a row of logits."""
        logits = self._lib.llama_get_logits_ith(context, row)
        return int(np.ctypeslib.as_array(logits, (self._vocab,)).argmax())

    def _thread_pool(self) -> int:
        """Threads that stay between passes, as llama.cpp's own programs have them."""
        device = self._ggml.ggml_backend_dev_by_type(CPU_DEVICE)
        registry = self._base.ggml_backend_dev_backend_reg(device)
        address = self._base.ggml_backend_reg_get_proc_address(registry, b"ggml_threadpool_new")
        new = ctypes.CFUNCTYPE(c_void_p, POINTER(ThreadPoolParams))(address)
        params = ThreadPoolParams()
        self._base.ggml_threadpool_params_init(params, self._threads)
        return int(new(params))

    def _declare(self) -> None:
        for library, name, result, *arguments in (
            (self._ggml, "ggml_backend_load_all_from_path", None, c_char_p),
            (self._ggml, "ggml_backend_load", c_void_p, c_char_p),
            (self._ggml, "ggml_backend_dev_by_type", c_void_p, c_int),
            (self._base, "ggml_backend_dev_backend_reg", c_void_p, c_void_p),
            (self._base, "ggml_backend_reg_get_proc_address", c_void_p, c_void_p, c_char_p),
            (self._base, "ggml_threadpool_params_init", None, POINTER(ThreadPoolParams), c_int),
            (self._lib, "llama_log_set", None, LOG, c_void_p),
            (self._lib, "llama_backend_init", None),
            (self._lib, "llama_model_default_params", ModelParams),
            (self._lib, "llama_context_default_params", ContextParams),
            (self._lib, "llama_model_load_from_file", c_void_p, c_char_p, ModelParams),
            (self._lib, "llama_init_from_model", c_void_p, c_void_p, ContextParams),
            (self._lib, "llama_get_memory", c_void_p, c_void_p),
            (self._lib, "llama_memory_clear", None, c_void_p, c_bool),
            (self._lib, "llama_model_get_vocab", c_void_p, c_void_p),
            (self._lib, "llama_vocab_n_tokens", c_int32, c_void_p),
            (self._lib, "llama_memory_seq_rm", c_bool, c_void_p, c_int32, c_int32, c_int32),
            (self._lib, "llama_batch_get_one", Batch, POINTER(c_int32), c_int32),
            (self._lib, "llama_decode", c_int32, c_void_p, Batch),
            (self._lib, "llama_encode", c_int32, c_void_p, Batch),
            (self._lib, "llama_model_n_embd", c_int32, c_void_p),
            (self._lib, "llama_get_logits_ith", POINTER(c_float), c_void_p, c_int32),
            (self._lib, "llama_attach_threadpool", None, c_void_p, c_void_p, c_void_p),
            (self._lib, "llama_print_system_info", c_char_p),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
