"""The target interface around a model of the transformers library: slower than ours, any kind.

Its own cache keeps every row, sliding windows or not, and the mask says what a row sees. A model
that heeds no such mask, or keeps a state that no rows can be taken from, is found out when it is
loaded: its answers to a small tree must be those to the tree's paths.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model.transformers_model import new_cache
from adaptivespec.engine.target import Pass, PrefillProgress, Target, TargetLimits
from adaptivespec.nn.attention import pieces

#: Rows of one prefill pass.
PREFILL_ROWS = 512
#: How far logits may be from those of a chain, against their spread, for the tree to be in order:
#: in float32, and in shorter types.
_TOLERANCE, _SHORT_TOLERANCE = 1e-3, 0.1


@dataclass
class TransformersSequence:
    """The library's cache of one sequence, of which the first `length` rows are committed."""

    rows: Any = field(default_factory=new_cache)
    length: int = 0

    def keep(self, rows: Tensor | slice) -> None:
        """Drop all rows but these."""
        for layer in self.rows.layers:
            if layer.is_initialized:
                layer.keys, layer.values = layer.keys[..., rows, :], layer.values[..., rows, :]


class TransformersTarget(Target[TransformersSequence]):
    """A causal language model of transformers with one cache per sequence.

    Args:
        model: as `load_model` gives it.
        max_model_len: longest sequence in tokens.

    Raises:
        ConfigError: a model that trees cannot be verified with; says what is in the way.
    """

    backend = "transformers"

    def __init__(self, model: Any, max_model_len: int) -> None:
        self.model = model
        self.dtype, self.device = model.dtype, model.device
        config = model.config.get_text_config(decoder=True)
        self.model_type = config.model_type
        self.limits = TargetLimits(
            config.vocab_size, config.hidden_size, config.num_hidden_layers, max_model_len
        )
        self._window: int | None = getattr(config, "sliding_window", None)
        # Where layers differ, the model takes a mask for each kind of them.
        kinds = set(getattr(config, "layer_types", None) or ())
        self._kinds = sorted(kinds) if "sliding_attention" in kinds else []
        if kinds == {"full_attention"}:
            self._window = None
        if unknown := kinds - {"full_attention", "sliding_attention"}:
            raise self._unfit(f"has layers of {', '.join(sorted(unknown))}")
        known = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        if missing := {"attention_mask", "position_ids", self._cache_name} - set(known):
            raise self._unfit(f"takes no {' and no '.join(sorted(missing))}")
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self._check_trees()

    @property
    def embedding(self) -> Tensor:
        """The token embedding `[vocab, hidden]`: for a drafter to borrow."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    @property
    def output(self) -> Tensor:
        """The output layer `[vocab, hidden]`."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    def new_cache(self, capacity: int) -> TransformersSequence:
        return TransformersSequence()

    def length(self, cache: TransformersSequence) -> int:
        return cache.length

    @torch.inference_mode()
    def prefill(
        self,
        cache: TransformersSequence,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        if not tokens:
            raise ValueError("a prefill needs at least one token")
        ids = torch.tensor(tokens, dtype=torch.long, device=self.device)
        taps: list[Tensor] = []
        for piece, positions, visible in pieces(ids, cache.length, PREFILL_ROWS):
            logits, tap = self._run(cache, piece, positions, visible, tap_layers, **self._last_only)
            cache.length += piece.shape[0]
            taps.append(tap)
            if progress is not None:
                progress(sum(map(len, taps)), len(tokens))
        return Pass(logits[-1:], torch.cat(taps))

    @torch.inference_mode()
    def verify(
        self, cache: TransformersSequence, tree: DraftTree, tap_layers: Sequence[int] = ()
    ) -> Pass:
        positions = tree.positions(cache.length)
        return Pass(*self._run(cache, tree.token, positions, tree.ancestor_mask(), tap_layers))

    @torch.inference_mode()
    def commit(self, cache: TransformersSequence, path: Sequence[int]) -> None:
        if list(path) != list(range(len(path))):
            nodes = torch.tensor(path, dtype=torch.long, device=self.device) + cache.length
            cache.keep(torch.cat([torch.arange(cache.length, device=self.device), nodes]))
        cache.length += len(path)

    @torch.inference_mode()
    def truncate(self, cache: TransformersSequence, length: int) -> None:
        cache.length = min(cache.length, length)
        cache.keep(slice(cache.length))

    @torch.inference_mode()
    def copy(self, cache: TransformersSequence, other: TransformersSequence, rows: int) -> bool:
        cache.rows, cache.length = new_cache(), rows
        for index, layer in enumerate(other.rows.layers):
            if layer.is_initialized:
                keys, values = layer.keys[..., :rows, :], layer.values[..., :rows, :]
                cache.rows.update(keys, values, index)  # which copies them
        return True

    def _run(
        self,
        cache: TransformersSequence,
        tokens: Tensor,
        positions: Tensor,
        visible: Tensor,
        tap_layers: Sequence[int],
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Logits and taps of rows behind the committed ones, which stay in the cache for now."""
        cache.keep(slice(cache.length))
        out = self.model(
            input_ids=tokens[None],
            attention_mask=self._masks(cache.length, positions, visible),
            position_ids=positions[None],
            use_cache=True,
            output_hidden_states=bool(tap_layers),
            **{self._cache_name: cache.rows},
            **options,
        )
        logits: Tensor = out.logits[0]
        taps = logits.new_empty(len(tokens), 0)
        if tap_layers:
            taps = torch.cat([out.hidden_states[layer][0] for layer in tap_layers], -1)
        return logits, taps

    def _masks(self, length: int, positions: Tensor, visible: Tensor) -> Tensor | dict[str, Tensor]:
        """What each row sees, additive `[1, 1, R, length + R]`; one each where layers differ."""
        prefix = torch.arange(length, device=self.device)
        everything = torch.cat([visible.new_ones(len(positions), length), visible], -1)
        near = everything
        if self._window is not None:
            near = everything & (positions[:, None] - torch.cat([prefix, positions]) < self._window)
        if not self._kinds:
            return self._additive(near)
        masks = {"full_attention": everything, "sliding_attention": near}
        return {kind: self._additive(masks[kind]) for kind in self._kinds}

    def _additive(self, visible: Tensor) -> Tensor:
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~visible, torch.finfo(self.dtype).min)[None, None]

    @torch.inference_mode()
    def _check_trees(self) -> None:
        """Raise ConfigError unless a tree's rows are those of its paths, also behind kept rows."""
        vocab = self.limits.vocab_size
        prompt = [(7919 * i + 11) % vocab for i in range(5)]
        tokens = [(104729 * i + 17) % vocab for i in range(6)]
        tree = DraftTree.from_parents(tokens, [-1, 0, 0, 1, 2, 2], device=self.device)
        after = DraftTree.root_only(tokens[0], device=self.device)
        paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 2, 5], [0, 2, 5, 0]]
        try:
            cache = self.new_cache(16)
            self.prefill(cache, prompt)
            found = self.verify(cache, tree).logits
            self.commit(cache, [0, 2, 5])
            found = torch.cat([found, self.verify(cache, after).logits]).float()
            chains = [
                self.prefill(self.new_cache(16), [*prompt, *(tokens[node] for node in path)])
                for path in paths
            ]
        except Exception as error:  # whatever the model's own code does
            problem = str(error).partition("\n")[0]
            raise self._unfit(f"cannot run a tree ({problem})") from error
        wanted = torch.cat([chain.logits for chain in chains]).float()
        errors = (found - wanted).pow(2).mean(-1).sqrt()
        tolerance = _TOLERANCE if self.dtype == torch.float32 else _SHORT_TOLERANCE
        if not bool((errors <= tolerance * wanted.std(-1)).all()):
            raise self._unfit("answers a tree otherwise than the tree's paths")

    def _unfit(self, problem: str) -> ConfigError:
        return ConfigError(
            f"a {self.model_type} {problem}, so drafts cannot be verified with it",
            field="model",
            remedy="Use a model whose layers attend to all rows or to a window of them",
        )
