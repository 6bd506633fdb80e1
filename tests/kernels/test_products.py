"""Squared chords from products: as exact as coordinates in float32 allow, whether points are close or far apart."""

import pytest
import torch
from torch.nn.functional import normalize

triton = pytest.importorskip("triton")
tl = triton.language

from polarvit.kernels.attention import products  # noqa: E402

POINTS = 64


@triton.jit
def chord_kernel(x, y, out, WIDTH: tl.constexpr, POINTS: tl.constexpr):
    dims, points = tl.arange(0, WIDTH), tl.arange(0, POINTS)
    place = dims[:, None] * POINTS + points[None, :]
    centre = tl.load(y + dims * POINTS)[:, None]
    x1, x2, x3, a, b, c = products.pieces(tl.load(x + place) - centre)
    y1, y2, y3, d, e, f = products.pieces(tl.load(y + place) - centre)
    half = products.half_squared_chords(tl.trans(x1), tl.trans(x2), tl.trans(x3), y1, y2, y3, a, b, c, d, e, f)
    tl.store(out + points[:, None] * POINTS + points[None, :], half)


def chords(x, y):
    """What the kernel makes of directions [points, dims], and the truth."""
    out = torch.full((POINTS, POINTS), torch.nan, device=x.device)
    chord_kernel[(1,)](x.mT.contiguous(), y.mT.contiguous(), out, WIDTH=x.shape[1], POINTS=POINTS, num_warps=4)
    difference = x.double()[:, None] - y.double()
    return out.double(), difference.square().sum(-1) / 2


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-4, 1e-2])
def test_half_squared_chords_are_right_to_2_to_the_minus_37_and_as_inputs_are_rounded(width, spread, apart, device):
    """`spread`: of all points around an axis; `apart`: of the i-th points of both sets.

    Rounding the offsets moves a point by 2^-25 of its distance from the centre, which a chord of length L feels as L
    times that. The last term is float32 itself, four times as much on a GPU: tensor cores cut sums off instead of
    rounding them, after every sixteen terms of eight products.
    """
    generator = torch.Generator().manual_seed(0)
    axis = torch.zeros(width, dtype=torch.float64)
    axis[0] = float(spread < 1)
    x = normalize(axis + spread * torch.randn(POINTS, width, generator=generator, dtype=torch.float64), dim=-1)
    y = normalize(x + apart * torch.randn(POINTS, width, generator=generator, dtype=torch.float64), dim=-1)
    ours, exact = chords(x.float().to(device), y.float().to(device))
    last_places = 2.0**-21 if device == "cpu" else 2.0**-19
    allowed = 2.0**-37 + 2.0**-24 * (2 * exact).sqrt() * (2 * exact.max()).sqrt() + last_places * exact
    assert ((ours - exact).abs() / allowed).max() <= 1


def test_products_in_float32_would_be_wrong_by_far_more(device):
    """What the split is for: the plain formula loses all of a chord of 1e-4."""
    generator = torch.Generator().manual_seed(0)
    x = normalize(torch.randn(POINTS, 64, generator=generator), dim=-1)
    y = normalize(x + 1e-5 * torch.randn(POINTS, 64, generator=generator), dim=-1)
    exact = (x.double() - y.double()).square().sum(-1) / 2
    plain = (x.square().sum(-1) + y.square().sum(-1)) / 2 - (x * y).sum(-1)
    ours, _ = chords(x.to(device), y.to(device))
    assert (plain.double() - exact).abs().max() > 100 * (ours.diagonal().cpu() - exact).abs().max()
