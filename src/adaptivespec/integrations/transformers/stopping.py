"""transformers' stopping criteria, asked for one committed token after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Stops:
    """What ends one row's output, in the place of a set of token ids.

    `token in stops` appends the token to the row and asks the criteria, so each committed token is
    to be asked for once and in order, as ``commit`` does.

    Args:
        criteria: a StoppingCriteriaList.
        input_ids: i64[rows, L]. Criteria get all rows, each with this row's ids, and only this
            row of their answer counts: some tell rows apart by their place.
        row: the one that is decoded.
    """

    def __init__(self, criteria: Any, input_ids: Tensor, row: int) -> None:
        self._criteria, self._row, self._rows = criteria, row, input_ids.shape[0]
        self._ids = input_ids[row]

    def __contains__(self, token: int) -> bool:
        last = torch.tensor([token], dtype=self._ids.dtype, device=self._ids.device)
        self._ids = torch.cat([self._ids, last])
        return bool(self._criteria(self._ids.repeat(self._rows, 1), None)[self._row])
