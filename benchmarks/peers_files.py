"""What the peers need: llama.cpp's libraries, and our weights in files that it reads.

All lie in the folder `peers` of the user's cache and are made when they are first asked for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from adaptivespec.core.errors import ModelNotFoundError
from adaptivespec.draft.eagle3_checkpoint import WEIGHTS_FILE, Eagle3Checkpoint
from adaptivespec.engine.loading import SHIPPED_HEADS
from adaptivespec.engine.weights import fetch_embedded
from adaptivespec.engine.weights.store import cache_root

PACKAGE = "@node-llama-cpp/linux-x64@3.22.1"
"""Prebuilt llama.cpp with kernels for every generation of processors; peers_llama.py binds it."""
LAYER = {
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Tensors of a head's layer, and what llama.cpp calls them."""


def embedded() -> Path:
    """The folder of the embedded model."""
    return fetch_embedded()


def q4_1() -> Path:
    """The embedded model as it was published."""
    return next(embedded().glob("*.gguf"))


def q8_0() -> Path:
    """The embedded model in Q8_0."""
    return _made("q8_0.gguf", lambda out: write_q8_0(q4_1(), out))


def eagle3_head() -> Path:
    """The head that the package ships for it."""
    [name] = SHIPPED_HEADS.values()
    folder = Path(str(files("adaptivespec").joinpath("heads", name)))
    digest = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()

    def make(out: Path) -> None:
        write_head(Eagle3Checkpoint.load(folder), q4_1(), out)

    return _made(f"{name}-{digest[:12]}.gguf", make)  # a head may be trained anew


def llama_libraries() -> Path:
    """The folder of llama.cpp's shared libraries, from the npm registry.

    Raises:
        ModelNotFoundError: there is no npm, or it did not fetch them.
    """

    def make(out: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise ModelNotFoundError("npm is not installed", field=PACKAGE)
        out.mkdir()
        command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise ModelNotFoundError(f"npm pack: {done.stderr.strip()}", field=PACKAGE)
        [archive] = out.glob("*.tgz")
        with tarfile.open(archive) as package:
            package.extractall(out, filter="data")
        archive.unlink()

    return _made(PACKAGE.replace("/", "-"), make) / "package" / "bins" / "linux-x64"


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The file or folder of this name in the cache; whole, or not there."""
    path = cache_root(None) / "peers" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{name}.{os.getpid()}")
        make(part)
        part.rename(path)
    return path


def write_q8_0(source: Path, out: Path) -> None:
    """The GGUF file `source` with its Q4_1 matrices in Q8_0: the same weights to 8 bits."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    _copy_metadata(reader, writer)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind == Kind.Q4_1:
            data, kind = quantize(dequantize(data, kind), Kind.Q8_0), Kind.Q8_0
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    _finish(writer)


def write_head(head: Eagle3Checkpoint, target: Path, out: Path) -> None:
    """An EAGLE-3 head as a GGUF file in Q8_0, with the tokenizer of the GGUF file `target`.

    Names, rows paired for the rotation and absolute ids in `d2t` are those of llama.cpp's own
    converter (`conversion/llama.py`).
    """
    config = head.config
    writer = gguf.GGUFWriter(out, "eagle3")
    reader = gguf.GGUFReader(target)
    _copy_metadata(reader, writer, "tokenizer.")
    if config.max_position_embeddings:
        writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(1)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    layers = int(reader.fields["llama.block_count"].contents())
    writer.add_array("eagle3.target_layers", list(config.taps_for(layers)))
    writer.add_uint32("eagle3.target_hidden_size", config.hidden_size)
    writer.add_bool("eagle3.norm_before_residual", False)
    writer.add_bool("eagle3.norm_before_fc", False)
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
    for name, tensor in head.tensors.items():
        if name in ("d2t", "t2d"):
            continue
        part, _, _ = name.removeprefix("midlayer.").rpartition(".")
        if name.startswith("midlayer."):
            part = LAYER[part]
        data = tensor.float().numpy()
        if part in heads:
            data = permute_rope(data, heads[part])
        label = {"norm": "output_norm", "lm_head": "output"}.get(part, part)
        _add(writer, f"blk.0.{label}.weight" if part in LAYER.values() else f"{label}.weight", data)
    offsets = head.tensors["d2t"].numpy().astype(np.int64)
    writer.add_tensor("d2t", offsets + np.arange(len(offsets)), raw_dtype=Kind.I64)
    _finish(writer)


def _add(writer: gguf.GGUFWriter, name: str, data: Any) -> None:
    """A matrix in Q8_0, a vector in float32."""
    if data.ndim == 1:
        writer.add_tensor(name, data)
    else:
        writer.add_tensor(name, quantize(data, Kind.Q8_0), raw_dtype=Kind.Q8_0)


def permute_rope(weight: Any, num_heads: int) -> Any:
    """Rows (i, i + head_dim / 2) of a head, paired for the rotation, side by side."""
    rows, columns = weight.shape
    half = rows // num_heads // 2
    return weight.reshape(num_heads, 2, half, columns).swapaxes(1, 2).reshape(rows, columns)


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, prefix: str = "") -> None:
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.architecture")):
            continue  # the writer's own
        if field.name.startswith(prefix):
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
