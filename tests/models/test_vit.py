"""The Euclidean twin: its two ways to attend are one function."""

import pytest
import torch
import torch.nn.functional as F

from polarvit.models import vit


@pytest.mark.parametrize("tokens", [1, 65, 127])
def test_attention_written_out_is_scaled_dot_product_attention(tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, upstream = (torch.randn(2, 3, tokens, 8, generator=generator, dtype=torch.float64) for _ in range(4))
    leaves = [(5 * q).requires_grad_(), (5 * k).requires_grad_(), v.requires_grad_()]  # sharp: weights near one-hot
    ours, theirs = vit.written_out_attention(*leaves), F.scaled_dot_product_attention(*leaves)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    both = [torch.autograd.grad(out, leaves, upstream) for out in (ours, theirs)]
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_scores_beyond_the_range_of_exp_stay_finite() -> None:
    q = torch.full((1, 1, 3, 4), 100.0)
    out = vit.written_out_attention(q, q, torch.ones_like(q))
    torch.testing.assert_close(out, torch.ones_like(q))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("tokens", "written_out"), [(64, False), (65, True), (128, False), (196, False)])
def test_short_sequences_of_odd_length_are_written_out(monkeypatch, tokens: int, written_out: bool) -> None:
    called = []
    monkeypatch.setattr(vit, "written_out_attention", lambda q, k, v: called.append(True) or v)
    x = torch.randn(1, 2, tokens, 16, device="cuda")
    vit.dot_attention(x, x, x)
    assert bool(called) is written_out
