import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adaptivespec.core.law import at_parent, draw, filtered, greedy_law, sampled_law
from adaptivespec.core.tree import DraftTree

INF = math.inf


def normalised(logits):
    """Logits as ``filtered`` takes them: the maximum is 0."""
    x = torch.tensor(logits, dtype=torch.float32)
    return x - x.amax(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_greedy_takes_the_lowest_id_on_ties_and_copies_nothing(dtype):
    z = torch.tensor([[1, 3, 3, 0], [5, 5, 5, 5], [-1, -3, -2, -1]], dtype=dtype)
    law = greedy_law(z)
    assert law.target.tolist() == [1, 0, 0]
    assert law.target.dtype == torch.int64
    assert law.peak.tolist() == [3.0, 5.0, -1.0]
    assert law.peak.dtype == torch.float32
    assert law.logits.data_ptr() == z.data_ptr()
    assert law.logp is None
    assert law.target_drop.tolist() == [0.0, 0.0, 0.0]


def test_greedy_of_a_batch_and_of_a_view():
    z = torch.randn(3, 4, 20, generator=torch.Generator().manual_seed(0))
    law = greedy_law(z)
    assert torch.equal(law.target, z.argmax(-1))
    view = z[:, ::2, :13]
    assert torch.equal(greedy_law(view).target, view.argmax(-1))
    assert torch.equal(greedy_law(view).peak, view.amax(-1))


def test_greedy_passes_nan_on():
    z = torch.zeros(2, 4)
    z[1, 2] = math.nan
    assert greedy_law(z).peak.isnan().tolist() == [False, True]
    assert greedy_law(z.bfloat16()).peak.isnan().tolist() == [False, True]


def test_drops_and_margins():
    z = torch.tensor([[0.0, 2.0, 1.0, -INF], [3.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    law = greedy_law(z)
    tree = DraftTree.from_parents([0, 2, 3], [-1, 0, 0])
    assert law.child_drop(tree).tolist() == [INF, 1.0, INF]
    assert law.drop_of(torch.tensor([2, 2, 2])).tolist() == [1.0, 2.0, 0.0]
    margins = law.margin_of(torch.tensor([2, 0, 1])).tolist()
    assert margins == pytest.approx([math.exp(-1), 1.0, 1.0])


def test_child_drop_of_a_batch_with_padding():
    trees = [DraftTree.from_parents([0, 1, 2, 3], [-1, 0, 1, 1]), DraftTree.chain([0, 2])]
    batch = DraftTree.pad_stack(trees)
    z = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    drop = greedy_law(z).child_drop(batch)
    for row, tree in enumerate(trees):
        single = greedy_law(z[row, : tree.num_nodes]).child_drop(tree)
        assert torch.equal(drop[row, : tree.num_nodes], single)
    assert drop[1, 2:].tolist() == [INF, INF]


def test_top_k_keeps_ties_with_the_last():
    scaled, weight = filtered(normalised([4.0, 3.0, 3.0, 2.0, 1.0]), top_k=2)
    assert torch.isfinite(scaled).tolist() == [True, True, True, False, False]
    assert (weight > 0).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.05, 1), (0.49, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.94, 3), (0.96, 4), (1.0, 4)],
)
def test_top_p_keeps_the_shortest_prefix_of_that_mass(top_p, kept):
    x = normalised([math.log(p) for p in (0.15, 0.5, 0.05, 0.3)])
    scaled, _ = filtered(x, top_p=top_p)
    largest = sorted(range(4), key=lambda i: -x[i])[:kept]
    assert torch.isfinite(scaled).nonzero().flatten().tolist() == sorted(largest)


def test_top_p_counts_the_mass_that_top_k_left():
    x = normalised([math.log(p) for p in (0.4, 0.2, 0.2, 0.1, 0.1)])
    # 0.4 of the 0.8 that top-k leaves is half
    assert torch.isfinite(filtered(x, top_k=3, top_p=0.45)[0]).sum() == 1
    assert torch.isfinite(filtered(x, top_p=0.45)[0]).sum() == 3  # two tie at the end


@pytest.mark.parametrize(("min_p", "kept"), [(1.0, 1), (0.6, 1), (0.59, 2), (0.31, 2), (0.1, 4)])
def test_min_p_is_a_share_of_the_largest(min_p, kept):
    x = normalised([math.log(p) for p in (0.5, 0.3, 0.15, 0.05)])
    # 0.3 / 0.5 rounds to either side of 0.6, so the boundary is approached from both
    expected = kept if min_p != 0.6 else int((x >= math.log(0.6)).sum())
    assert torch.isfinite(filtered(x, min_p=min_p)[0]).sum() == expected


def test_a_wide_nucleus_beside_a_narrow_one():
    flat = torch.zeros(1000)
    flat[:700] += torch.linspace(0.01, 0.1, 700)
    peaked = torch.full((1000,), -20.0)
    peaked[5] = 0.0
    both = torch.stack([flat - flat.max(), peaked])
    scaled, _ = filtered(both, top_p=0.6)
    probability = both[0].softmax(-1).double().sort(descending=True).values
    wanted = int((probability.cumsum(0) < 0.6).sum()) + 1
    assert abs(int(torch.isfinite(scaled[0]).sum()) - wanted) <= 1
    assert torch.isfinite(scaled[1]).nonzero().flatten().tolist() == [5]
    alone, _ = filtered(both[:1], top_p=0.6)
    assert torch.equal(alone[0], scaled[0])


@pytest.mark.parametrize("size", [1, 5, 127, 128, 129, 300])
def test_draw_is_the_inverse_cdf(size):
    weight = torch.rand(size, generator=torch.Generator().manual_seed(size)).softmax(-1)
    edges = weight.double().cumsum(0)
    for u in torch.linspace(0.001, 0.999, 97, dtype=torch.float64):
        got = int(draw(weight, u))
        below = float(edges[got - 1]) if got else 0.0
        assert below - 1e-6 <= float(u * edges[-1]) <= float(edges[got]) + 1e-6


@pytest.mark.parametrize("size", [3, 128, 200, 256, 1000])
@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53, 1 - 2**-24])
def test_draw_never_returns_a_token_of_weight_zero(size, u):
    point = torch.tensor(u, dtype=torch.float64)
    for lone in {0, 1, size // 2, size - 2, size - 1}:
        weight = torch.zeros(size)
        weight[lone] = 1e-3
        assert int(draw(weight, point)) == lone
    weight = torch.rand(size, generator=torch.Generator().manual_seed(1))
    weight[::2] = 0.0
    weight[-1] = 0.0
    if weight.sum() > 0:
        assert weight[int(draw(weight, point))] > 0


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-30, 1e-6])
def test_a_tiny_temperature_is_the_argmax_without_overflow(temperature):
    z = torch.tensor([[1.0, 3.0, 2.9, -INF], [-1e30, 1e30, 0.0, 5.0]])
    law = sampled_law(z, torch.tensor([0.3, 0.999], dtype=torch.float64), temperature)
    assert law.target.tolist() == [1, 1]
    assert not law.logp.isnan().any()
    assert law.target_drop.tolist() == [0.0, 0.0]


def test_logp_is_the_normalised_law():
    z = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    law = sampled_law(z, torch.tensor([0.5], dtype=torch.float64), 0.5, top_k=3)
    want = (torch.tensor([1.0, 2.0, 3.0]) / 0.5).log_softmax(-1)
    assert law.logp[0, 0] == -INF
    assert torch.allclose(law.logp[0, 1:], want)


@pytest.mark.parametrize("vocab", [17, 130, 1000, 49152])
@pytest.mark.parametrize("filters", [{}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.05}])
def test_a_row_does_not_depend_on_its_neighbours(vocab, filters):
    generator = torch.Generator().manual_seed(vocab)
    z = torch.randn(7, vocab, generator=generator) * 4
    u = torch.rand(7, generator=generator, dtype=torch.float64)
    together = sampled_law(z, u, 0.7, **filters)
    for row in range(7):
        alone = sampled_law(z[row : row + 1], u[row : row + 1], 0.7, **filters)
        assert alone.target[0] == together.target[row]
        assert torch.equal(alone.scaled[0], together.scaled[row])


def test_log_norm_and_entropy_by_hand():
    z = torch.tensor([[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25] * 4]).log() + 7
    law = greedy_law(z)
    assert law.log_norm.tolist() == pytest.approx([math.log(2), 0.0, math.log(4)], abs=1e-6)
    # 0.5 ln 2 + 2 * 0.25 ln 4 = 1.5 ln 2
    assert law.entropy.tolist() == pytest.approx([1.5 * math.log(2), 0.0, math.log(4)], abs=1e-6)
    assert (law.log_norm >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("vocab", [3, 128, 130, 1000])
def test_log_norm_and_entropy_are_the_softmax_of_the_raw_logits(dtype, vocab):
    z = (torch.randn(2, 3, vocab, generator=torch.Generator().manual_seed(vocab)) * 5).to(dtype)
    z[0, 1, 0] = -INF
    p = z.double().softmax(-1)
    uniform = torch.zeros(2, 3, dtype=torch.float64)
    for law in (greedy_law(z), sampled_law(z, uniform, 0.5, top_k=2)):  # whatever the temperature
        assert law.log_norm.shape == law.entropy.shape == (2, 3)
        assert law.log_norm.dtype == law.entropy.dtype == torch.float32
        assert torch.allclose(law.log_norm.double(), -p.amax(-1).log(), atol=1e-6)
        assert torch.allclose(law.entropy.double(), torch.special.entr(p).sum(-1), atol=1e-5)


def test_large_logits_keep_their_entropy():
    z = torch.tensor([[1e4, 1e4 - 1.0, -1e4, -1e30]])
    p = torch.tensor([0.0, -1.0]).softmax(-1)
    law = greedy_law(z)
    assert law.entropy[0] == pytest.approx(float(torch.special.entr(p).sum()), abs=1e-6)
    assert law.log_norm[0] == pytest.approx(math.log(1 + math.exp(-1)), abs=1e-6)


@pytest.mark.parametrize("vocab", [130, 49152])
def test_log_norm_and_entropy_of_a_row_do_not_depend_on_its_neighbours(vocab):
    z = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab)) * 4
    law = greedy_law(z)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for row in range(7):
            alone = greedy_law(z[row : row + 1])
            assert alone.log_norm[0] == law.log_norm[row]
            assert alone.entropy[0] == law.entropy[row]
    finally:
        torch.set_num_threads(threads)


def test_log_norm_and_entropy_never_copy_a_whole_batch(monkeypatch):
    z = torch.randn(5, 4, 100, generator=torch.Generator().manual_seed(2))
    whole = greedy_law(z)
    want = whole.log_norm, whole.entropy
    monkeypatch.setattr("adaptivespec.core.law._ROW_BLOCK", 300)
    law = greedy_law(z)
    with Largest() as seen:
        got = law.log_norm, law.entropy
    assert seen.size == 3 * 128  # three rows of 100, padded for the sum
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


class Largest(TorchDispatchMode):
    """Records the entries of the largest tensor that is created, views not counted."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.size = max(self.size, out.numel())
        return out


@pytest.mark.parametrize("seed", range(30))
def test_the_argmax_of_bfloat16_rows_is_that_of_torch(seed):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(3, 4, 300, generator=generator).mul(3).round().bfloat16()  # many ties
    if seed % 3 == 0:
        z -= 40  # nothing positive
    if seed % 5 == 0:
        z[0, 0, 7:] = -math.inf
    law = greedy_law(z)
    peak = z.float().amax(-1)
    first = (z.float() == peak.unsqueeze(-1)).float().argmax(-1)
    assert torch.equal(law.peak, peak)
    assert torch.equal(law.target, first)
    assert torch.equal(greedy_law(z[:, :, ::2]).peak, z[:, :, ::2].float().amax(-1))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_nan_of_either_sign_reaches_the_peak(sign, dtype):
    z = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=dtype)
    z[1, 0] = torch.tensor(math.nan, dtype=dtype).copysign(torch.tensor(sign, dtype=dtype))
    peak = greedy_law(z).peak
    assert peak[0] == 3.0
    assert peak[1].isnan()


def test_entries_at_the_parent_for_any_leading_dimensions():
    trees = [DraftTree.from_parents([1, 2, 3], [-1, 0, 1]), DraftTree.from_parents([4, 0], [-1, 0])]
    batch = DraftTree.pad_stack(trees)
    rows = torch.arange(2 * 3 * 5.0).reshape(2, 3, 5)
    assert at_parent(rows, batch)[:, 1:].tolist() == [[2.0, 8.0], [15.0, 15.0]]
    deep = DraftTree(
        *(x.expand(4, 2, 3) for x in (batch.token, batch.parent, batch.depth)),
        batch.logq.expand(4, 2, 3),
    )
    assert torch.equal(at_parent(rows.expand(4, 2, 3, 5), deep)[3], at_parent(rows, batch))
