"""Distances of tiles and their derivatives against 60 digits; products on the tensor cores."""

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")
mpmath = pytest.importorskip("mpmath")
tl = triton.language

from polarvit.kernels.attention import products, tiles  # noqa: E402

# The interpreter's numpy divides by zero in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EPS = 2.0**-24
SIZE = 8
RADII = {
    "0-1": (0.0, 1.0),
    "1e-12-1e-2": (1e-12, 1e-2),
    "1-8": (1.0, 8.0),
    "8-8.001": (8.0, 8.001),
    "12-12.00001": (12.0, 12.00001),
    "8-16": (8.0, 16.0),
    "16-60": (16.0, 60.0),
    "80-110": (80.0, 110.0),
    "1e-3-1000": (1e-3, 1000.0),
    "100-1000": (100.0, 1000.0),
}


@triton.jit
def distance_kernel(a, b, square, out, SIZE: tl.constexpr):
    rows, columns = tiles.numbers(0, SIZE, 4), tiles.numbers(0, SIZE, 8)
    half_a, down_a, ebb_a, sh_a = tiles.radial_terms(tl.load(a + rows))
    half_b, down_b, ebb_b, sh_b = tiles.radial_terms(tl.load(b + columns))
    place = tiles.of_rows(rows * SIZE) + tiles.of_columns(columns)
    distance2, by_chord, by_a, by_b = tiles.distance_gradients(
        half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, tl.load(square + place)
    )
    tl.store(out + place, distance2)
    tl.store(out + SIZE * SIZE + place, by_chord)
    tl.store(out + 2 * SIZE * SIZE + place, by_a)
    tl.store(out + 3 * SIZE * SIZE + place, by_b)


def exact(a, b, square):
    """D^2, half its derivatives by 1/2|u-v|^2, a and b, and D, from the law of haversines."""
    a, b, square = (mpmath.mpf(float(x)) for x in (a, b, square))
    distance = 2 * mpmath.asinh(
        mpmath.sqrt(mpmath.sinh((a - b) / 2) ** 2 + mpmath.sinh(a) * mpmath.sinh(b) * square / 4)
    )
    slope = distance / mpmath.sinh(distance) if distance else mpmath.mpf(1)
    by_a = slope * (mpmath.sinh(a - b) + mpmath.cosh(a) * mpmath.sinh(b) * square / 2)
    by_b = slope * (mpmath.sinh(b - a) + mpmath.cosh(b) * mpmath.sinh(a) * square / 2)
    return distance**2, slope * mpmath.sinh(a) * mpmath.sinh(b), by_a, by_b, distance


@pytest.mark.parametrize("chord", [2.0, 1e-3, 1e-7, 0.0])
@pytest.mark.parametrize("name", RADII)
def test_distances_and_their_derivatives_hold_at_every_radius(name, chord, device):
    """Relative to the largest derivative (D itself for radii), in units of eps (1 + r)."""
    generator = np.random.default_rng(0)
    low, high = RADII[name]
    if 0 < low < 0.1 * high:
        a, b = np.exp(generator.uniform(np.log(low), np.log(high), (2, SIZE))).astype(np.float32)
    else:
        a, b = generator.uniform(low, high, (2, SIZE)).astype(np.float32)
    a[:2], b[0] = (low, high), low  # equal radii, the origin where low is 0, and the largest gap
    square = (chord * generator.uniform(0, 1, (SIZE, SIZE))).astype(np.float32) ** 2
    square[0, 0] = 0.0
    out = torch.full((4, SIZE, SIZE), torch.nan, device=device)
    distance_kernel[(1,)](*(torch.tensor(x, device=device) for x in (a, b, square)), out, SIZE=SIZE, num_warps=1)
    with mpmath.workdps(60):
        for i in range(SIZE):
            for j in range(SIZE):
                *truths, distance = exact(a[i], b[j], square[i, j])
                truths[1] = min(truths[1], mpmath.mpf(tiles.LARGEST_SLOPE.value)) if square[i, j] else mpmath.mpf(0)
                sizes = truths[0], truths[1], distance, distance
                unit = EPS * (1 + float(max(a[i], b[j])))
                for what, ours, truth, size in zip(
                    ("D^2", "by chord", "by a", "by b"), out[:, i, j].tolist(), truths, sizes, strict=True
                ):
                    assert np.isfinite(ours), f"{what} at {a[i]}, {b[j]}, {square[i, j]}: {ours}"
                    error = abs(ours - truth) / (unit * max(size, mpmath.mpf("1e-37")))
                    allowed = 16 if device.type == "cpu" else 48  # the GPU approximates logarithm and roots
                    assert error <= allowed, f"{what} at {a[i]}, {b[j]}, {square[i, j]}: {float(error):.1f} units"


@triton.jit
def product_kernel(x, y, out, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(
        out + place, products.sharp_product(tl.load(x + place), tl.load(y + place), tl.zeros([SIZE, SIZE], tl.float32))
    )


def test_a_sharp_product_is_a_float32_product_without_bias(device):
    generator = np.random.default_rng(0)
    x, y = generator.uniform(0.5, 1, (2, 32, 32)).astype(np.float32)
    out = torch.full((32, 32), torch.nan, device=device)
    product_kernel[(1,)](torch.tensor(x, device=device), torch.tensor(y, device=device), out, SIZE=32, num_warps=1)
    truth = x.astype(np.float64) @ y.astype(np.float64)
    error = out.cpu().double().numpy() / truth - 1
    assert np.abs(error).max() <= 8 * EPS
    # Cut instead of rounded leading bits are off by 2 eps in the mean; the tensor cores' sums are cut in any case.
    assert device.type != "cpu" or abs(error.mean()) <= 0.5 * EPS
