"""llama.cpp's EAGLE-3 by its C interface: a chain of drafts from our head, exact acceptance.

`Chain.generate` follows `common_speculative_impl_draft_eagle3` of `common/speculative.cpp`
(v0.5.0), which is C++ only, for one sequence and with its default of no early stop. Of the draft
model's two graphs the encoder turns the target's taps into a feature for each token; the decoder
reads the pair (token at P + 1, feature at P) at position P.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import POINTER, c_bool, c_float, c_int8, c_int32, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from peers_llama import Batch, LlamaCpp

Features = npt.NDArray[np.float32]

ENCODED_AT_ONCE = 512  # llama_encode takes one micro batch
EXTENSIONS = {
    "llama_model_target_layer_ids": "_Z28llama_model_target_layer_idsPK11llama_model",
    "llama_set_embeddings_layer_inp": "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "llama_get_embeddings_layer_inp": "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "llama_set_embeddings_nextn": "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "llama_get_embeddings_nextn": "_Z26llama_get_embeddings_nextnP13llama_context",
}
"""Functions of `src/llama-ext.h`, which have C++ names."""


class Chain(LlamaCpp):
    """A target with a head, whose file is of the architecture `eagle3`."""

    def __init__(
        self,
        libraries: Path,
        model: Path,
        head: Path,
        size: int,
        threads: int,
        kernels: str = "",
    ) -> None:
        super().__init__(libraries, model, size, threads, kernels)
        self._ext = self._extensions()
        self._head, self._drafter = self._open(head, self._context)
        self._drafted = self._lib.llama_get_memory(self._drafter)
        self._hidden = self._lib.llama_model_n_embd(self._model)
        self._taps = self._ext["llama_model_target_layer_ids"](self._head)[:3]
        for layer in self._taps:
            self._ext["llama_set_embeddings_layer_inp"](self._context, layer, True)
        self._ext["llama_set_embeddings_nextn"](self._drafter, True, True)

    def generate(self, prompt: Sequence[int], tokens: int, length: int) -> Iterator[list[int]]:
        """The next `tokens` ids after `prompt`, ends of text included, a step's at a time.

        `length` tokens are drafted, one after the other, for each pass of the target.
        """
        for memory in (self._memory, self._drafted):
            self._lib.llama_memory_clear(memory, True)
        given = list(prompt)
        self._pass(self._context, given, 0, last_only=True)
        features = self._read(given, 0)
        token, end, feature = self._best(self._context, -1), len(given), features[-1]
        yield [token]
        done = 1
        while done < tokens:
            drafts = self._draft(token, end - 1, feature, length)
            tried = [token, *drafts]
            self._pass(self._context, tried, end)
            features = self._read(tried, end)
            best = [self._best(self._context, row) for row in range(len(tried))]
            wrong = (i for i, draft in enumerate(drafts) if draft != best[i])
            accepted = next(wrong, len(drafts))
            token, feature, end = best[accepted], features[accepted], end + accepted + 1
            self._lib.llama_memory_seq_rm(self._memory, 0, end, -1)
            new = best[: accepted + 1][: tokens - done]
            done += len(new)
            yield new

    def _draft(self, token: int, position: int, feature: Features, length: int) -> list[int]:
        """The chain after `token`; of the rows that it writes only the first stays."""
        self._lib.llama_memory_seq_rm(self._drafted, 0, position, -1)
        drafts: list[int] = []
        while len(drafts) < length:
            self._pass(self._drafter, [token], position + len(drafts), feature[None])
            token, feature = self._best(self._drafter, 0), self._outputs(1)[0]
            drafts.append(token)
        self._lib.llama_memory_seq_rm(self._drafted, 0, position + 1, -1)
        return drafts

    def _read(self, tokens: list[int], position: int) -> Features:
        """Features [N, hidden] of the tokens that the target has just seen; all but the last, whose
        next token is not known, go into the head's cache."""
        parts = []
        for layer in self._taps:
            address = self._ext["llama_get_embeddings_layer_inp"](self._context, layer)
            parts.append(np.ctypeslib.as_array(address, (len(tokens), self._hidden)))
        taps = np.ascontiguousarray(np.concatenate(parts, axis=1))
        encoded = []
        for rows in np.split(taps, range(ENCODED_AT_ONCE, len(taps), ENCODED_AT_ONCE)):
            batch = Batch(n_tokens=len(rows), embd=_pointer(rows, c_float))
            if code := self._lib.llama_encode(self._drafter, batch):
                raise RuntimeError(f"llama_encode returned {code}")
            encoded.append(self._outputs(len(rows)))
        features = np.concatenate(encoded)
        if len(tokens) > 1:
            self._pass(self._drafter, tokens[1:], position, features[:-1], outputs=False)
        return features

    def _outputs(self, rows: int) -> Features:
        """What the draft model gave for each row of its last pass, a copy."""
        address = self._ext["llama_get_embeddings_nextn"](self._drafter)
        return np.ctypeslib.as_array(address, (rows, self._hidden)).copy()

    def _pass(
        self,
        context: int,
        tokens: list[int],
        position: int,
        features: Features | None = None,
        *,
        outputs: bool = True,
        last_only: bool = False,
    ) -> None:
        """Decode `tokens` from `position` on, with logits of all, the last or none."""
        rows = len(tokens)
        wanted = np.full(rows, outputs and not last_only, np.int8)
        wanted[-1] = outputs
        arrays = np.array(tokens, np.int32), np.arange(position, position + rows, dtype=np.int32)
        batch = Batch(n_tokens=rows, logits=_pointer(wanted, c_int8))
        batch.token, batch.pos = (_pointer(array, c_int32) for array in arrays)
        if features is not None:
            features = np.ascontiguousarray(features)
            batch.embd = _pointer(features, c_float)
        self._decode(context, batch)

    def _extensions(self) -> dict[str, Any]:
        found = {name: getattr(self._lib, symbol) for name, symbol in EXTENSIONS.items()}
        for name, result, *arguments in (
            ("llama_model_target_layer_ids", POINTER(c_int32), c_void_p),
            ("llama_set_embeddings_layer_inp", None, c_void_p, c_uint32, c_bool),
            ("llama_get_embeddings_layer_inp", POINTER(c_float), c_void_p, c_uint32),
            ("llama_set_embeddings_nextn", None, c_void_p, c_bool, c_bool),
            ("llama_get_embeddings_nextn", POINTER(c_float), c_void_p),
        ):
            found[name].restype, found[name].argtypes = result, arguments
        return found


def _pointer(array: npt.NDArray[Any], kind: Any) -> Any:
    """The address of an array, which must outlive its use."""
    return array.ctypes.data_as(POINTER(kind))
