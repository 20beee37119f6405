"""Every place of SGLang that the plugin builds on, and a check that a release still has them.

SGLang promises none of these. The check reads the release's source without importing it. So it is
quick, works before any device is touched, and can be run on a release that is not installed
(``missing_seams(root)``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

TESTED = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")


@dataclass(frozen=True)
class Seam:
    """One place of the host.

    Attributes:
        module: dotted, below ``sglang``.
        name: function, class or ``Class.method``.
        params: parameters it must have, whatever others there are.
        fields: attributes that the class must declare.
        calls: (callee, keywords): a call by that name with these keywords that its body must hold.
    """

    module: str
    name: str
    params: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    calls: tuple[str, tuple[str, ...]] | None = None


_WORKER = "srt.speculative.eagle_worker_v2"
_UTILS = "srt.speculative.eagle_utils"
_COMMON = "srt.speculative.eagle_worker_common"
_TREE = ("candidates", "retrieve_next_token", "retrieve_next_sibling", "target_predict")

SEAMS = (
    Seam("srt.plugins.hook_registry", "HookRegistry.register", ("target", "hook", "hook_type")),
    Seam("srt.speculative.spec_info", "SpeculativeAlgorithm.register", ("name",)),
    Seam("srt.speculative.spec_info", "SpeculativeAlgorithm.from_string", ("name",)),
    Seam("srt.speculative.spec_info", "SpeculativeAlgorithm.create_worker", ("server_args",)),
    Seam("srt.speculative.spec_info", "SpeculativeAlgorithm.handle_server_args", ("server_args",)),
    Seam("srt.speculative.spec_registry", "CustomSpecAlgo.handle_server_args", ("server_args",)),
    Seam("srt.speculative.spec_registry", "register_algorithm", ("supports_overlap", "spec_class")),
    Seam("srt.arg_groups.overrides", "resolving_view", ("server_args",)),
    Seam("srt.arg_groups.overrides", "declare_resolution", ("server_args", "source", "fields")),
    Seam("srt.runtime_context", "get_context"),
    Seam("srt.runtime_context", "get_spec"),
    Seam("srt.runtime_context", "get_parallel"),
    Seam("srt.runtime_context", "get_schedule"),
    Seam("srt.runtime_context", "get_exec"),
    Seam("srt.runtime_context", "get_serving"),
    Seam("srt.runtime_context", "get_observability"),
    Seam("srt.runtime_context", "RuntimeContext.override", ("source", "fields")),
    Seam(
        _WORKER,
        "EAGLEWorkerV2.__init__",
        ("server_args", "gpu_id", "nccl_port", "target_worker"),
        calls=("EagleDraftWorker", ()),
    ),
    Seam(_WORKER, "EAGLEWorkerV2.forward_batch_generation", ("batch",)),
    Seam(_WORKER, "EAGLEWorkerV2.verify", ("batch",), calls=("run_eagle_verify", ())),
    Seam(_WORKER, "EAGLEWorkerV2.init_cuda_graphs"),
    Seam(
        _WORKER,
        "EAGLEWorkerV2._override_worker_state",
        ("speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs"),
    ),
    Seam(
        _WORKER,
        "EAGLEWorkerV2.build_adaptive_runtime_state",
        ("speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs"),
        calls=("SpecRuntimeState", ("draft_attn_backend", "target_attn_backend")),
    ),
    Seam(
        _WORKER,
        "EAGLEWorkerV2.on_verify_complete_cpu",
        ("num_correct_drafts_per_req", "batch_size"),
    ),
    Seam(_WORKER, "EagleDraftWorker.__init__", ("server_args",)),
    Seam(_WORKER, "EagleDraftWorker.draft", ("batch",)),
    Seam(_WORKER, "EagleDraftWorker.init_attention_backend"),
    Seam(_WORKER, "EagleDraftWorker._capture_cuda_graphs"),
    Seam(_WORKER, "EagleDraftWorker._draft_extend_for_prefill", ("batch",)),
    Seam(_WORKER, "EagleDraftWorker._draft_extend_for_decode", ("batch", "batch_result")),
    Seam("srt.speculative.base_spec_worker", "EagleDraftWorkerBase._rebuild_topk1_chain_buffers"),
    Seam(
        "srt.speculative.adaptive_runtime_state",
        "SpecRuntimeState",
        fields=(
            "speculative_num_steps",
            "speculative_num_draft_tokens",
            "draft_attn_backend",
            "cuda_graph_runner",
            "target_attn_backend",
            "target_graph_runner",
            "draft_extend_attn_backend",
            "cuda_graph_runner_for_draft_extend",
        ),
    ),
    Seam(_COMMON, "run_eagle_verify", ("batch",), calls=("eagle_sample", ())),
    Seam(
        _UTILS,
        "eagle_sample",
        ("verify_input", "batch", "logits_output"),
        calls=("verify_tree_greedy_func", _TREE),
    ),
    Seam(_UTILS, "verify_tree_greedy_func", _TREE),
    Seam(
        "srt.speculative.eagle_info",
        "EagleDraftInput",
        fields=("topk_p", "topk_index", "bonus_tokens"),
    ),
    Seam(
        "srt.sampling.sampling_batch_info",
        "SamplingBatchInfo",
        fields=(
            "is_all_greedy",
            "penalizer_orchestrator",
            "acc_additive_penalties",
            "acc_scaling_penalties",
        ),
    ),
    Seam("srt.sampling.sampling_params", "SamplingParams.verify", ("vocab_size",)),
    Seam(
        "srt.managers.tokenizer_manager",
        "TokenizerManager.update_request_meta_info",
        ("meta_info", "state", "customized_info"),
    ),
)


def sglang_version() -> str | None:
    """The installed release, None when there is none."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def sglang_root() -> Path | None:
    """The folder of the installed package, found without importing it."""
    spec = find_spec("sglang")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def missing_seams(root: Path) -> list[str]:
    """What of ``SEAMS`` the package at ``root`` lacks, a sentence each; empty when all is there."""
    return [problem for seam in SEAMS if (problem := _check(root, seam)) is not None]


def _check(root: Path, seam: Seam) -> str | None:
    where = f"sglang.{seam.module}:{seam.name}"
    found = list(_definitions(root, seam.module, seam.name.split(".")))
    if not found:
        return f"{where} is not there"
    problems = [_mismatch(node, seam) for node in found]
    problem = next((text for text in problems if text is not None), None)
    return None if None in problems else f"{where} {problem}"


def _mismatch(node: ast.stmt, seam: Seam) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        have = {arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        have |= {arg.arg for arg in (node.args.vararg, node.args.kwarg) if arg is not None}
        lacking = [name for name in seam.params if name not in have]
        if lacking:
            return f"has no parameter {', '.join(lacking)}; it has {', '.join(sorted(have))}"
        if seam.calls is not None and not _calls(node, *seam.calls):
            callee, keywords = seam.calls
            return f"does not call {callee}({', '.join(f'{k}=' for k in keywords)})"
    if isinstance(node, ast.ClassDef) and seam.fields:
        have = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        lacking = [name for name in seam.fields if name not in have]
        if lacking:
            return f"declares no {', '.join(lacking)}"
    return None


def _calls(node: ast.AST, callee: str, keywords: tuple[str, ...]) -> bool:
    """Whether the body calls ``callee`` by that bare name with at least these keywords."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == callee
        and set(keywords) <= {keyword.arg for keyword in call.keywords}
        for call in ast.walk(node)
    )


def _definitions(root: Path, module: str, path: list[str]) -> Iterator[ast.stmt]:
    """Every definition of a dotted name in a module, followed through `from x import name`."""
    tree = _parse(root, module)
    if tree is None:
        return
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.startswith("sglang.") and path[0] in {a.name for a in node.names}:
                yield from _definitions(root, node.module.removeprefix("sglang."), path)
        elif getattr(node, "name", None) == path[0]:
            if len(path) == 1:
                yield node
            elif isinstance(node, ast.ClassDef):
                members = _statements(node.body)
                yield from (m for m in members if getattr(m, "name", None) == path[1])


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse, *node.finalbody])


@lru_cache(maxsize=64)
def _parse(root: Path, module: str) -> ast.Module | None:
    base = root.joinpath(*module.split("."))
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None
