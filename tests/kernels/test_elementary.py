"""The elementary functions of the kernels, in float32 against float64 over their whole range."""

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")
tl = triton.language

from polarvit.kernels.attention import elementary  # noqa: E402

EPS = 2.0**-24
SIZE = 4096


@triton.jit
def apply_kernel(x, y, NAME: tl.constexpr, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    value = tl.load(x + places)
    if NAME == "expm1":
        value = elementary.expm1(value)
    elif NAME == "log1p":
        value = elementary.log1p(value)
    elif NAME == "sinh":
        value = elementary.sinh(value)
    elif NAME == "cosh":
        value = elementary.cosh(value)
    elif NAME == "scaled_sinh":
        value = elementary.scaled_sinh(value)
    elif NAME == "scaled_cosh":
        value = elementary.scaled_cosh(value)
    elif NAME == "asinh_of_root":
        value = elementary.asinh_of_root(value)
    elif NAME == "normal_share":
        value, _ = elementary.normal_share(value)
    elif NAME == "normal_density":
        _, value = elementary.normal_share(value)
    tl.store(y + places, value)


def erfc(x: np.ndarray) -> np.ndarray:
    return torch.erfc(torch.from_numpy(x)).numpy()


def spread(low: float, high: float) -> np.ndarray:
    """Arguments that are dense in every power of ten between low and high, and dense near 1/2 and 1."""
    grid = np.geomspace(low, high, SIZE - 512)
    return np.concatenate([grid, np.linspace(0.2, min(1.2, high), 511), [0.0]]).astype(np.float32)


# Name, float64 truth, arguments, allowed error in eps and its growth with the argument. The interpreter stays below 5;
# the GPU's division, square root and exponential are each off by up to 2 units in the last place (4 eps), and the
# exponential of x by the rounding of x log2(e).
CASES = [
    ("expm1", np.expm1, spread(1e-30, 80.0), 6, 1.5),
    ("expm1", np.expm1, -spread(1e-30, 200.0), 6, 0.0),
    ("log1p", np.log1p, spread(1e-30, 1e30), 8, 0.0),
    ("sinh", np.sinh, spread(1e-30, 85.0), 8, 1.5),
    ("sinh", np.sinh, -spread(1e-30, 85.0), 8, 1.5),
    ("cosh", np.cosh, spread(1e-30, 85.0), 6, 1.5),
    ("scaled_sinh", lambda x: -0.5 * np.expm1(-2 * x), spread(1e-30, 1000.0), 6, 0.0),
    ("scaled_cosh", lambda x: 0.5 + 0.5 * np.exp(-2 * x), spread(1e-30, 1000.0), 4, 0.0),
    ("normal_share", lambda x: 0.5 * erfc(-x * 0.5**0.5), spread(1e-30, 40.0), 16, 0.0),
    ("normal_share", lambda x: 0.5 * erfc(-x * 0.5**0.5), -spread(1e-30, 10.0), 16, 60.0),
    ("normal_density", lambda x: (2 * np.pi) ** -0.5 * np.exp(-0.5 * x * x), spread(1e-30, 10.0), 8, 12.0),
    ("asinh_of_root", lambda x: np.arcsinh(np.sqrt(x)), spread(1e-36, 1e36), 10, 0.0),
]


@pytest.mark.parametrize(
    ("name", "truth", "x", "allowed", "growth"), CASES, ids=[f"{c[0]}-{c[2].min():.0g}-{c[2].max():.0g}" for c in CASES]
)
def test_elementary_functions_are_a_few_units_in_the_last_place_off(name, truth, x, allowed, growth, device):
    out = torch.full((SIZE,), torch.nan, device=device)
    apply_kernel[(1,)](torch.tensor(x, device=device), out, NAME=name, SIZE=SIZE)
    exact = truth(x.astype(np.float64))
    error = np.abs(out.cpu().double().numpy() - exact)
    units = error / (EPS * np.maximum(np.abs(exact), 1e-37) * (allowed + growth * np.abs(x)))
    assert units.max() <= 1.0, f"{name} at {x[units.argmax()]!r}: {units.max() * allowed:.1f} eps"
