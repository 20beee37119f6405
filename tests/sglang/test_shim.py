"""The operators that stand in for SGLang's compiled ones, against SGLang's own Triton kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.run import SHIM

HERE = Path(__file__).parent


def test_tree_operators_equal_sglangs_triton_kernels():
    """In a process of its own: Triton must be told before it is imported that it interprets."""
    script = HERE / "harness" / "compare_tree_operators.py"
    variables = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SHIM)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def operators():
    """The shim's package, which must not stay on the path: `torchvision` lies beside it."""
    sys.path.insert(0, str(SHIM))
    try:
        import sgl_kernel
    finally:
        sys.path.remove(str(SHIM))
    return sgl_kernel


def dense_attention(query, key, value, allowed, scale):
    """[T, H, D]; allowed bool[T, S]."""
    repeat = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(repeat, 1).transpose(0, 1) for x in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1), key, value, attn_mask=allowed, scale=scale
    ).transpose(0, 1)


@pytest.mark.parametrize("masked", [True, False])
def test_extend_attention_equals_torchs_own(operators, masked):
    generator = torch.Generator().manual_seed(0)
    lengths, new, heads, kv_heads, dim, slots = [9, 5], [4, 3], 6, 2, 8, 40
    keys, values = torch.randn(2, slots, kv_heads, dim, generator=generator)
    table = torch.stack([torch.randperm(slots, generator=generator)[:12] for _ in lengths])
    query = torch.randn(sum(new), heads, dim, generator=generator)
    masks = [torch.rand(n, n, generator=generator) < 0.5 for n in new]
    masks = [mask.logical_or(torch.eye(len(mask)).bool()) for mask in masks]
    if not masked:
        masks = [torch.ones(n, n).tril().bool() for n in new]
    out = torch.empty_like(query)
    operators.extend_attention_cpu(
        query, None, None, out, keys, values, 1.0, 1.0, table,
        torch.tensor([0, 1]), torch.tensor(lengths), torch.tensor(new), torch.tensor([0, 4]),
        max(new), 0.3, 0.0, False, 0,
        tree_mask=torch.cat([mask.flatten() for mask in masks]) if masked else None,
    )  # fmt: skip
    for row, (length, count, start, mask) in enumerate(
        zip(lengths, new, (0, 4), masks, strict=True)
    ):
        seen = table[row, :length]
        allowed = torch.cat([torch.ones(count, length - count).bool(), mask], 1)
        some = query[start : start + count]
        expected = dense_attention(some, keys[seen], values[seen], allowed, 0.3)
        torch.testing.assert_close(out[start : start + count], expected)


def test_decode_attention_stores_the_key_and_sees_all(operators):
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 20, 2, 8, generator=generator)
    table = torch.arange(20).view(2, 10)
    query, key, value = (torch.randn(2, heads, 8, generator=generator) for heads in (4, 2, 2))
    out, slots, lengths = torch.empty_like(query), torch.tensor([6, 13]), torch.tensor([7, 4])
    operators.decode_attention_cpu(
        query, keys, values, 1.0, 1.0, out, key, value, slots, None, table,
        torch.tensor([0, 1]), lengths, 0.5, 0.0, False, 0,
    )  # fmt: skip
    assert torch.equal(keys[slots], key)
    assert torch.equal(values[slots], value)
    for row, length in enumerate(lengths.tolist()):
        seen, allowed = table[row, :length], torch.ones(1, length).bool()
        expected = dense_attention(query[row : row + 1], keys[seen], values[seen], allowed, 0.5)
        torch.testing.assert_close(out[row : row + 1], expected)


def test_slots_are_written_and_read_back(operators):
    table = torch.zeros(4, 10, dtype=torch.int32)
    rows, start, end = torch.tensor([2, 0]), torch.tensor([3, 0]), torch.tensor([5, 4])
    slots = torch.arange(100, 106)
    operators.assign_req_to_token_pool_cpu(rows, table, start, end, slots, 10)
    assert table[2].tolist() == [0, 0, 0, 100, 101, 0, 0, 0, 0, 0]
    assert table[0].tolist() == [102, 103, 104, 105, 0, 0, 0, 0, 0, 0]
    back = torch.empty_like(slots)
    operators.assign_extend_cache_locs_cpu(rows, table, start, end, back, 10)
    assert torch.equal(back, slots)


def test_each_beam_gets_the_sequence_and_its_own_drafts(operators):
    table = torch.arange(40).view(2, 20)
    beams = operators.build_draft_decode_metadata_cpu(
        table, torch.tensor([1, 0]), torch.tensor([3, 2]), 2, 4, 20
    )
    assert beams[0, :7].tolist() == [20, 21, 22, 23, 24, 25, 26]
    assert beams[1, :7].tolist() == [20, 21, 22, 27, 28, 29, 30]
    assert beams[3, :6].tolist() == [0, 1, 6, 7, 8, 9]


def test_kv_rows_move_even_where_they_overlap(operators):
    buffers = [torch.arange(24, dtype=torch.float32).view(6, 4), torch.arange(12).view(6, 2)]
    expected = [buffer.clone() for buffer in buffers]
    to, source = torch.tensor([1, 2]), torch.tensor([2, 5])
    for buffer in expected:
        buffer[to] = buffer[source].clone()
    operators.copy_all_layer_kv_cache_cpu(
        torch.tensor([buffer.data_ptr() for buffer in buffers]),
        torch.tensor([buffer[0].numel() * buffer.element_size() for buffer in buffers]),
        to,
        source,
    )
    assert all(torch.equal(*pair) for pair in zip(buffers, expected, strict=True))


def test_what_the_last_token_of_a_run_is(operators):
    bonus = torch.empty(2, dtype=torch.int32)
    tokens = torch.tensor([[5, 6, 7], [8, 9, 10]])
    operators.fill_bonus_tokens_cpu(tokens, torch.tensor([1, 3]), bonus, 3)
    assert bonus.tolist() == [5, 10]
    accepted = torch.zeros(4, dtype=torch.long)
    index = torch.tensor([[0, 2, -1], [4, -1, -1]])
    operators.fill_accept_out_cache_loc_cpu(index, torch.arange(10) * 10, accepted)
    assert accepted.tolist() == [0, 20, 40, 0]


def test_ids_move_left_for_the_drafter(operators):
    ids = torch.tensor([1, 2, 3, 4, 5])
    operators.rotate_input_ids_cpu(
        ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([8, 9])
    )
    assert ids.tolist() == [2, 3, 8, 5, 9]
