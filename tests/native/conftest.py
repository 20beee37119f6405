"""Tiny random models for the native engine, and an independent forward in numpy float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from adaptivespec.native.build import ISAS, NativeBuildError, detect_isa, isa_named, library_path
from adaptivespec.native.library import Library, Matrix, NativeConfig, NativeModel, Norm
from adaptivespec.native.weights import RawTensor

Array = npt.NDArray[np.float64]
IN_LAYER = (
    Matrix.QUERY,
    Matrix.KEY,
    Matrix.VALUE,
    Matrix.ATTENTION_OUTPUT,
    Matrix.GATE,
    Matrix.UP,
    Matrix.DOWN,
)


def quantised(values: Array, kind: str) -> tuple[RawTensor, Array]:
    """`values [rows, columns]` in the format `kind`, and what the format makes of them."""
    rows, columns = values.shape
    groups = values.reshape(rows, columns // 32, 32)
    if kind == "Q4_1":
        low, high = groups.min(-1), groups.max(-1)
        scale, minimum = ((high - low) / 15).astype(np.float16), low.astype(np.float16)
        quants = np.rint((groups - minimum[..., None]) / scale[..., None]).clip(0, 15)
        nibbles = quants.astype(np.uint8)
        blocks = np.concatenate(
            [
                scale[..., None].view(np.uint8),
                minimum[..., None].view(np.uint8),
                nibbles[..., :16] | nibbles[..., 16:] << 4,
            ],
            -1,
        )
        exact = quants * scale[..., None].astype(float) + minimum[..., None].astype(float)
    else:
        scale = (np.abs(groups).max(-1) / 127).astype(np.float16)
        quants = np.rint(groups / scale[..., None].astype(float)).clip(-127, 127)
        blocks = np.concatenate(
            [scale[..., None].view(np.uint8), quants.astype(np.int8).view(np.uint8)], -1
        )
        exact = quants * scale[..., None].astype(float)
    if kind == "F32":
        stored = values.astype(np.float32)
    elif kind == "BF16":
        stored = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        stored = blocks
    return RawTensor(kind, (rows, columns), stored.reshape(-1).view(np.uint8)), exact.reshape(
        rows, columns
    )


@dataclass
class Tiny:
    """A random model: its native form per instruction set, and its weights in float64.

    `family` is "llama", "qwen2" (biases of queries, keys and values) or "qwen3" (norms of heads).
    """

    config: NativeConfig
    kinds: tuple[str, ...] = ("Q4_1", "Q8_0", "F32", "BF16")
    seed: int = 0
    family: str = "llama"
    raw: dict[tuple[int, Matrix], RawTensor] = field(default_factory=dict)
    exact: dict[tuple[int, Matrix], Array] = field(default_factory=dict)
    gains: dict[tuple[int, Norm], npt.NDArray[np.float32]] = field(default_factory=dict)
    biases: dict[tuple[int, Matrix], npt.NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        c, random = self.config, np.random.default_rng(self.seed)
        width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
        shapes = {
            Matrix.QUERY: (width, c.hidden),
            Matrix.KEY: (kv_width, c.hidden),
            Matrix.VALUE: (kv_width, c.hidden),
            Matrix.ATTENTION_OUTPUT: (c.hidden, width),
            Matrix.GATE: (c.ffn, c.hidden),
            Matrix.UP: (c.ffn, c.hidden),
            Matrix.DOWN: (c.hidden, c.ffn),
        }
        wanted = [(0, Matrix.EMBEDDING, (c.vocab, c.hidden))]
        if not c.tied:
            wanted.append((0, Matrix.OUTPUT, (c.vocab, c.hidden)))
        wanted += [(i, which, shapes[which]) for i in range(c.layers) for which in IN_LAYER]
        for index, (layer, which, shape) in enumerate(wanted):
            values = random.standard_normal(shape) * (1.5 / shape[1] ** 0.5)
            if self.kinds[index % len(self.kinds)] == "BF16":  # what bf16 can hold
                values = (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
            tensor = quantised(values.astype(np.float32), self.kinds[index % len(self.kinds)])
            self.raw[layer, which], self.exact[layer, which] = tensor
        for layer in range(c.layers):
            for norm in (Norm.ATTENTION, Norm.FFN):
                self.gains[layer, norm] = self._gain(random)
        self.gains[0, Norm.OUTPUT] = self._gain(random)
        for layer in range(c.layers):
            if self.family == "qwen3":
                for norm in (Norm.QUERY, Norm.KEY):
                    self.gains[layer, norm] = random.uniform(0.5, 1.5, c.head_dim).astype(
                        np.float32
                    )
            for which in IN_LAYER[:3] if self.family == "qwen2" else ():
                bias = random.standard_normal(shapes[which][0]).astype(np.float32)
                self.biases[layer, which] = bias
        angle = np.outer(np.arange(c.max_len), 1e4 ** -np.linspace(0, 1, c.head_dim // 2))
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def _gain(self, random: np.random.Generator) -> npt.NDArray[np.float32]:
        return random.uniform(0.5, 1.5, self.config.hidden).astype(np.float32)

    def native(self, library: Library) -> NativeModel:
        model = NativeModel(self.config, library)
        model.rope(self.cos, self.sin)
        for (layer, which), tensor in self.raw.items():
            model.weight(layer, which, tensor)
        for (layer, norm), gain in self.gains.items():
            model.norm(layer, norm, gain)
        for (layer, which), bias in self.biases.items():
            model.bias(layer, which, bias)
        model.ready()
        return model

    def forward(self, tokens: list[int], tap_layers: list[int]) -> tuple[Array, Array, Array]:
        """Logits, taps and hidden of a whole sequence; keys and values rounded to f16."""
        c, n = self.config, len(tokens)
        x = self.exact[0, Matrix.EMBEDDING][tokens]
        cos, sin = self.cos[:n, None].astype(float), self.sin[:n, None].astype(float)
        taps = {}
        for i in range(c.layers):
            taps[i] = x
            normed = self._norm(x, (i, Norm.ATTENTION))
            q, k, v = (
                (normed @ self.exact[i, which].T + self.biases.get((i, which), 0)).reshape(
                    n, -1, c.head_dim
                )
                for which in (Matrix.QUERY, Matrix.KEY, Matrix.VALUE)
            )
            if self.family == "qwen3":
                q, k = self._norm(q, (i, Norm.QUERY)), self._norm(k, (i, Norm.KEY))
            q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
            k, v = (
                np.repeat(t.astype(np.float16).astype(float), c.heads // c.kv_heads, 1)
                for t in (k, v)
            )
            scores = np.einsum("nhd,mhd->hnm", q, k) / c.head_dim**0.5
            scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hnm,mhd->nhd", weights, v).reshape(n, -1)
            x = x + mixed @ self.exact[i, Matrix.ATTENTION_OUTPUT].T
            normed = self._norm(x, (i, Norm.FFN))
            gate = normed @ self.exact[i, Matrix.GATE].T
            up = normed @ self.exact[i, Matrix.UP].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.exact[i, Matrix.DOWN].T
        head = self.exact[0, Matrix.EMBEDDING if c.tied else Matrix.OUTPUT]
        logits = self._norm(x, (0, Norm.OUTPUT)) @ head.T
        return logits, np.concatenate([x[:, :0], *(taps[i] for i in tap_layers)], 1), x

    def _norm(self, x: Array, key: tuple[int, Norm]) -> Array:
        mean = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + self.config.rms_eps) * self.gains[key]


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def load(isa: str) -> Library:
    """The library for `isa`, or a skip that says why there is none."""
    try:
        if [i.name for i in ISAS].index(isa) < ISAS.index(detect_isa()):
            pytest.skip(f"this processor has no {isa}")
        return Library(str(library_path(isa=isa_named(isa))))
    except NativeBuildError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=[isa.name for isa in ISAS])
def library(request: pytest.FixtureRequest) -> Library:
    """Once per instruction set this processor has."""
    return load(request.param)


@pytest.fixture(scope="session")
def libraries() -> list[Library]:
    """All instruction sets; a skip unless there are two."""
    return [load(isa.name) for isa in ISAS]


@pytest.fixture(scope="session")
def make_tiny() -> Callable[..., Tiny]:
    """A maker of tiny models; sizes by name."""

    def make(
        seed: int = 0,
        kinds: tuple[str, ...] | None = None,
        family: str = "llama",
        **sizes: int,
    ) -> Tiny:
        defaults = {
            "layers": 2,
            "hidden": 96,
            "ffn": 160,
            "heads": 6,
            "kv_heads": 2,
            "head_dim": 32,
            "vocab": 75,
            "max_len": 256,
        }
        config = NativeConfig(
            **(defaults | {k: v for k, v in sizes.items() if k != "tied"}),
            rms_eps=1e-5,
            tied=bool(sizes.get("tied", True)),
        )
        return Tiny(config, kinds or ("Q4_1", "Q8_0", "F32", "BF16"), seed, family)

    return make
