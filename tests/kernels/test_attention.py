"""Polar attention: the kernel against the float64 reference, and what must stay finite."""

import importlib
import math
from typing import NamedTuple

import pytest
import torch
from cuda_graphs import assert_a_graph_gives_the_same

from polarvit.geometry import PolarPoint, distance
from polarvit.kernels import polar_attention

pytest.importorskip("triton")
launches = importlib.import_module("polarvit.kernels.attention.launches")
operator = importlib.import_module("polarvit.kernels.attention.operator")

# The interpreter's numpy divides by zero in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EPS = 2.0**-24
NAMES = ("query.radius", "query", "key.radius", "key", "value.radius", "value", "scale")


class Case(NamedTuple):
    """Sizes and radius of one comparison; `angle` is the spread of the directions around one axis (0: all around)."""

    B: int
    H: int
    N: int
    M: int
    d: int
    e: int
    r: float
    angle: float = 0.0
    k: float = 1.0

    def __str__(self) -> str:
        sizes = f"B{self.B}-H{self.H}-N{self.N}-M{self.M}-D{self.d}-E{self.e}-r{self.r:g}"
        return sizes + (f"-angle{self.angle:g}" if self.angle else "") + (f"-k{self.k:g}" if self.k != 1 else "")


SMALL = [
    Case(1, 2, 7, 7, 8, 8, 1),
    Case(1, 1, 33, 33, 16, 16, 1),
    Case(1, 1, 1, 33, 20, 8, 1, k=2.3),
    Case(1, 1, 7, 40, 8, 64, 1),
    Case(1, 1, 65, 65, 8, 8, 8),
    Case(1, 2, 17, 33, 16, 16, 8, angle=3e-4),
    Case(1, 1, 33, 17, 16, 16, 12),
    Case(2, 1, 7, 65, 8, 8, 12, angle=1e-5),
    Case(1, 1, 33, 70, 64, 40, 1),
    Case(1, 2, 17, 33, 64, 64, 8, angle=3e-4),
    Case(1, 1, 17, 33, 40, 64, 4, angle=2e-2),
    Case(1, 1, 17, 33, 64, 64, 0.01),
    Case(1, 1, 17, 33, 40, 40, 12),
]
TURNS = [  # sizes, programs and copies of gradients for a head, dimensions of a product, what that leads to
    pytest.param(Case(1, 1, 33, 17, 20, 8, 1), 1, 8, 16, id="one-program-in-turns-finishes"),
    pytest.param(Case(1, 1, 17, 17, 8, 40, 1), 1, 8, 16, id="one-program-in-turns-cannot-finish"),
    pytest.param(Case(1, 1, 49, 9, 20, 12, 8), 99, 3, 64, id="two-programs-of-two-turns"),
    pytest.param(Case(1, 2, 17, 17, 8, 34, 1), 99, 8, 64, id="two-programs-of-one-turn-known-side"),
    pytest.param(Case(1, 1, 48, 16, 16, 16, 1), 99, 8, 16, id="three-programs-exact-tiles"),
    pytest.param(Case(1, 1, 20, 1, 34, 3, 1), 1, 8, 16, id="one-key"),
    pytest.param(Case(1, 1, 20, 140, 40, 34, 1), 1, 8, 64, id="near-one-program-of-three-turns"),
    pytest.param(Case(1, 1, 36, 36, 34, 64, 8), 99, 8, 64, id="near-one-block-known-side"),
    pytest.param(Case(1, 1, 1, 1, 3, 2, 1), 1, 8, 16, id="one-pair"),
]
LARGE = [
    Case(8, 12, 64, 64, 16, 16, r, angle) for r, angle in ((1, 0), (8, 0), (8, 3e-4), (12, 0), (12, 1e-5), (0.01, 0))
] + [Case(2, 3, 196, 197, 64, 64, r, angle) for r, angle in ((1, 0), (4, 2e-2), (8, 0), (8, 3e-4), (0.01, 0))]
LARGE += [Case(64, 6, 196, 196, 64, 64, 3), Case(1, 2, 1000, 513, 64, 40, 6), Case(2, 3, 129, 196, 128, 128, 8)]
LARGE += [Case(1, 2, 1000, 513, 32, 100, 8, k=0.5)]
LARGE += [Case(1, 2, 196, 77, 128, 16, 1), Case(1, 2, 77, 196, 16, 128, 1), Case(96, 16, 100, 40, 64, 8, 8)]


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Everything a kernel should write holds NaN first."""

    def poisoned(shape, like, dtype=torch.float32):
        return torch.full(shape, torch.nan, dtype=dtype, device=like.device)

    monkeypatch.setattr(launches, "new_output", poisoned)
    monkeypatch.setattr(operator, "new_output", poisoned)


def draw(shape, n, r, angle, generator, device):
    """Radii in [r/2, r]; unit directions, all around or within `angle` of one axis. Drawn in float64, then rounded."""
    u = torch.randn(*shape, n, generator=generator, dtype=torch.float64)
    if angle:
        u = angle * u + torch.nn.functional.one_hot(torch.tensor(n - 1), n)
    radius = r * (0.5 + 0.5 * torch.rand(shape, generator=generator, dtype=torch.float64))
    return PolarPoint(radius.float().to(device), (u / u.norm(dim=-1, keepdim=True)).float().to(device))


def points(case, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((case.N, case.d), (case.M, case.d), (case.M, case.e))
    return [draw((case.B, case.H, n), d, case.r, case.angle, generator, device) for n, d in sizes]


def run(query, key, value, scale, implementation, dtype, *, k=1.0, mask=None):
    """Output and gradients of a fixed random functional of it, by all radii and directions, scale and k."""
    leaves = [x.detach().to(dtype).requires_grad_() for p in (query, key, value) for x in p]
    scale = scale.detach().to(dtype).requires_grad_()
    k = torch.tensor(k, dtype=dtype, device=scale.device, requires_grad=True)
    out = polar_attention(
        *(PolarPoint(*leaves[i : i + 2]) for i in (0, 2, 4)), scale, k=k, mask=mask, implementation=implementation
    )
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator).to(x) for x in out]
    loss = sum((x * w).sum() for x, w in zip(out, weights, strict=True))
    return out.map(torch.detach), torch.autograd.grad(loss, [*leaves, scale, k])


def scales(heads, device):
    return torch.linspace(0.2, 0.4, heads, device=device)


def check(case, device, mask=None):
    query, key, value = points(case, device)
    scale = scales(case.H, device)
    out, gradients = run(query, key, value, scale, "triton", torch.float32, k=case.k, mask=mask)
    exact, exact_gradients = run(query, key, value, scale, "reference", torch.float64, k=case.k, mask=mask)
    root, a = math.sqrt(case.k), case.r / math.sqrt(case.k)
    limit = EPS * (case.r + root) + root * math.sinh(a) * EPS
    error = distance(out.map(torch.Tensor.double), exact, k=case.k) / limit
    assert error.max() <= 4, f"seed 0: output {error.max():.2f} of the resolution limit"
    allowed = 1e-5 if case.r <= 1 else 1e-3 if case.r <= 8 else None
    for name, ours, theirs in zip((*NAMES, "k"), gradients, exact_gradients, strict=True):
        assert ours.isfinite().all(), name
        size = theirs.square().mean().sqrt() if case.M > 1 else 1.0  # one key: most are zero
        if name == "k":  # a sum over all radii whose terms cancel: measured against their size
            size = sum(
                (p.radius * g).abs().sum() for p, g in zip((query, key, value), exact_gradients[:6:2], strict=True)
            )
        off = (ours.double() - theirs).square().mean().sqrt() / size
        assert allowed is None or off <= allowed, f"seed 0: gradient by {name} {off:.1e} relative RMS"


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_outputs_and_gradients_match_the_float64_reference(case, device):
    check(case, device)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_outputs_and_gradients_match_at_full_size(case, device):
    check(case, device)


@pytest.mark.parametrize(("case", "programs", "parts", "chunk"), TURNS)
def test_gradients_are_right_however_the_work_is_divided(case, programs, parts, chunk, device, monkeypatch):
    monkeypatch.setattr(launches, "PROGRAMS", programs)
    monkeypatch.setattr(launches, "MOST_PARTS", parts)
    monkeypatch.setattr(launches, "LARGEST_CHUNK", chunk)
    monkeypatch.setattr(launches, "backward_tile", lambda n, width: launches.Tile(16, 16, 1))
    mask = torch.ones(case.B, case.M, dtype=torch.bool, device=device)
    mask[:, 1::3] = False
    check(case, device, mask if case.M > 1 else None)


@pytest.mark.parametrize(("n", "m"), [(17, 17), (16, 21), (21, 16)])
def test_near_and_far_heads_stand_side_by_side(n, m, device):
    mask = torch.ones(2, m, dtype=torch.bool, device=device)
    mask[1, 1::3] = False
    reach = torch.tensor([[1.0, 11.0], [11.0, 1.0]], device=device).view(2, 2, 1)
    inputs = [PolarPoint(p.radius * reach, p.direction) for p in points(Case(2, 2, n, m, 40, 34, 1), device)]
    out, gradients = run(*inputs, scales(2, device), "triton", torch.float32, mask=mask)
    exact, exact_gradients = run(*inputs, scales(2, device), "reference", torch.float64, mask=mask)
    limit = EPS * (reach + 1 + reach.sinh())
    assert (distance(out.map(torch.Tensor.double), exact) / limit).max() <= 4
    for name, ours, theirs in zip(NAMES[:-1], gradients, exact_gradients, strict=False):
        off = (ours - theirs).flatten(2).norm(dim=2) / theirs.flatten(2).norm(dim=2)
        assert off.max() <= 1e-2, f"seed 0: gradient by {name} {off.tolist()} relative RMS"


def test_two_tight_clusters_far_apart_keep_the_gradients_of_their_directions(device):
    """The worst case of offsets from one centre: half of the points are 1 away from it and 3e-4 from each other."""
    case = Case(1, 1, 16, 32, 16, 16, 8, angle=3e-4)
    query, key, value = points(case, device)
    sign = torch.ones(1, 1, 32, 1, device=device)
    sign[:, :, 1::2] = -1
    query, key, value = (PolarPoint(p.radius, p.direction * sign[:, :, : p.shape[2]]) for p in (query, key, value))
    _, gradients = run(query, key, value, scales(1, device), "triton", torch.float32)
    _, exact = run(query, key, value, scales(1, device), "reference", torch.float64)
    for name, ours, theirs in zip(NAMES, gradients, exact, strict=False):
        off = (ours.double() - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
        assert off <= 1e-3, f"seed 0: gradient by {name} {off:.1e} relative RMS"


def test_the_reference_is_the_ambient_formula_where_that_is_exact():
    query, key, value = (p.map(torch.Tensor.double) for p in points(Case(2, 2, 5, 7, 8, 8, 2), "cpu"))

    def ambient(p):
        return torch.cat([p.radius.cosh().unsqueeze(-1), p.radius.sinh().unsqueeze(-1) * p.direction], -1)

    q, x, v = ambient(query), ambient(key), ambient(value)
    product = q[..., :1] * x[..., :1].mT - q[..., 1:] @ x[..., 1:].mT
    mean = (-0.3 * product.acosh().square()).softmax(-1) @ v
    norm = mean[..., 1:].norm(dim=-1)
    out = polar_attention(query, key, value, 0.3, implementation="reference")
    torch.testing.assert_close(out.radius, torch.atanh(norm / mean[..., 0]))
    torch.testing.assert_close(out.direction, mean[..., 1:] / norm.unsqueeze(-1))


@pytest.mark.parametrize("width", [8, 40, 70])
def test_a_masked_key_does_not_count_and_a_row_without_keys_is_the_origin(width, device):
    query, key, value = points(Case(2, 1, 5, 9, width, width, 1), device)
    mask = torch.ones(2, 9, dtype=torch.bool, device=device)
    mask[0, 4:] = False
    mask[1] = False
    scale = scales(1, device)
    out, gradients = run(query, key, value, scale, "triton", torch.float32, mask=mask)
    exact, exact_gradients = run(query, key, value, scale, "reference", torch.float64, mask=mask)
    torch.testing.assert_close(out, exact.map(torch.Tensor.float), rtol=2e-6, atol=2e-6)
    assert (out.radius[1] == 0).all()
    assert (out.direction[1, ..., 0] == 1).all()
    for name, ours, theirs in zip(NAMES, gradients, exact_gradients, strict=False):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        assert name == "scale" or (ours[1] == 0).all(), name


def test_bfloat16_points_are_computed_in_float32_and_returned_in_bfloat16(device):
    query, key, value = points(Case(1, 2, 9, 7, 8, 8, 1), device)
    query, key, value = (p.map(torch.Tensor.bfloat16) for p in (query, key, value))
    scale = scales(2, device)
    leaves = [x.detach().requires_grad_() for p in (query, key, value) for x in p]
    out = polar_attention(*(PolarPoint(*leaves[i : i + 2]) for i in (0, 2, 4)), scale, implementation="triton")
    wide = [p.map(torch.Tensor.float) for p in (query, key, value)]
    exact = polar_attention(*wide, scale, implementation="reference")
    assert out.radius.dtype == out.direction.dtype == torch.bfloat16
    torch.testing.assert_close(out.map(torch.Tensor.float), exact, rtol=8e-3, atol=8e-3)
    gradients = torch.autograd.grad(out.radius.float().sum() + out.direction.float().square().sum(), leaves)
    assert all(g.dtype == torch.bfloat16 and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("r", [0.0, 12.0, 200.0, 1000.0])
def test_coinciding_points_come_back_as_they_are(r, device):
    point = draw((1, 1, 1), 8, 1.0, 0.0, torch.Generator().manual_seed(3), device)
    many = PolarPoint(torch.full((1, 1, 33), r, device=device), point.direction.expand(1, 1, 33, 8).contiguous())
    query = many.map(lambda x: x[:, :, :3])
    out, gradients = run(query, many, many, scales(1, device), "triton", torch.float32)
    torch.testing.assert_close(out.radius, query.radius, rtol=6 * EPS, atol=6 * EPS)
    torch.testing.assert_close(out.direction, query.direction, rtol=0, atol=4 * EPS)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("r", [8.0, 200.0, 1000.0])
def test_a_one_hot_row_returns_the_value_it_attends_to(r, device):
    _, key, value = points(Case(1, 1, 1, 9, 8, 8, r), device)
    query = key.map(lambda x: x[:, :, 2:5])
    out, gradients = run(query, key, value, torch.full((1,), 50.0, device=device), "triton", torch.float32)
    torch.testing.assert_close(out.radius, value.radius[:, :, 2:5], rtol=6 * EPS, atol=0)
    torch.testing.assert_close(out.direction, value.direction[:, :, 2:5], rtol=0, atol=6 * EPS)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("far", [[60.0, 140.0, 220.0], [980.0, 960.0, 1000.0]])
def test_radii_from_zero_to_a_thousand_in_one_row_stay_finite_and_right(far, device):
    """Right as long as the farthest value is not alone by more than 87 (the kernels' README)."""
    query, key, value = points(Case(1, 1, 6, 6, 8, 8, 1), device)
    radii = torch.tensor([0.0, 1e-6, 1.0, *far], device=device).view(1, 1, 6)
    query, key, value = (PolarPoint(radii, p.direction) for p in (query, key, value))
    scale = torch.full((1,), 1e-4, device=device)
    out, gradients = run(query, key, value, scale, "triton", torch.float32)
    exact, _ = run(query, key, value, scale, "reference", torch.float64)
    torch.testing.assert_close(out.radius, exact.radius.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out.direction, exact.direction.float(), rtol=0, atol=1e-4)
    assert all(g.isfinite().all() for g in gradients)


SPREADS = {"ray": 0.0, "hair": 1e-20, "close": 1e-7, "around": 1.0}


@pytest.mark.parametrize(("width", "kind"), [(40, "ray"), *((8, kind) for kind in SPREADS)])
def test_large_upstream_gradients_stay_finite_at_any_radius(width, kind, device):
    radii = torch.tensor([0.0, 1e-20, 12.0, 41.0, 60.0, 61.0, 90.0, 150.0, 1000.0], device=device).view(1, 1, 9)
    other = draw((1, 1, 9), width, 1.0, 0.0, torch.Generator().manual_seed(4), device).direction
    pole = torch.nn.functional.one_hot(torch.tensor(0, device=device), width)
    direction = torch.nn.functional.normalize(pole + SPREADS[kind] * other, dim=-1)
    leaves = [x.clone().requires_grad_() for x in (radii, direction)]
    some = PolarPoint(*leaves)
    for scale in (1e-3, 1.0):
        out = polar_attention(some, some, some, scale, implementation="triton")
        gradients = torch.autograd.grad(1e4 * (out.radius.sum() + out.direction[..., 1].sum()), leaves)
        assert all(x.isfinite().all() for x in (*out, *gradients)), f"scale {scale}"


@pytest.mark.parametrize("width", [8, 128])
def test_points_on_one_ray_are_as_far_apart_as_their_radii_at_any_radius(width, device):
    point = draw((1, 1, 1), width, 1.0, 0.0, torch.Generator().manual_seed(3), device)
    radii = torch.tensor([80.0, 100.0, 101.0, 103.0, 120.0], device=device).view(1, 1, 5)
    ray = PolarPoint(radii, point.direction.expand(1, 1, 5, width).contiguous())
    scale = torch.full((1,), 0.01, device=device)
    out, gradients = run(ray, ray, ray, scale, "triton", torch.float32)
    exact, _ = run(ray, ray, ray, scale, "reference", torch.float64)
    torch.testing.assert_close(out.radius.double(), exact.radius, rtol=1e-6, atol=0)
    assert all(g.isfinite().all() for g in gradients)


def test_transposed_views_and_dimension_first_storage_give_the_same(device):
    query, key, value = points(Case(1, 2, 5, 7, 8, 8, 1), device)
    first = polar_attention(query, key, value, 0.3, implementation="triton")
    by_token = [PolarPoint(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in p)) for p in (query, key, value)]
    torch.testing.assert_close(polar_attention(*by_token, 0.3, implementation="triton"), first, rtol=0, atol=0)
    by_dim = [PolarPoint(p.radius, p.direction.mT.contiguous().mT) for p in (query, key, value)]
    torch.testing.assert_close(polar_attention(*by_dim, 0.3, implementation="triton"), first, rtol=0, atol=0)


def test_the_operator_traces_and_differentiates_as_registered(device):
    query, key, value = points(Case(1, 2, 5, 7, 8, 8, 1), device)
    flat = [x for p in (query, key, value) for x in (p.radius, p.direction.mT.contiguous())]
    arguments = (*(x.requires_grad_() for x in flat), scales(2, device).requires_grad_(), None)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator.attention_forward, arguments, test_utils=tests)


def test_a_compiled_model_has_no_graph_break_and_the_same_gradients(device):
    query, key, value = points(Case(1, 2, 5, 7, 8, 8, 1), device)
    leaves = [x.requires_grad_() for p in (query, key, value) for x in p]
    scale = scales(2, device).requires_grad_()

    def loss(*xs):
        out = polar_attention(*(PolarPoint(*xs[i : i + 2]) for i in (0, 2, 4)), xs[6], k=2.0, implementation="triton")
        return out.radius.sum() + out.direction[..., 0].sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    ours = torch.autograd.grad(compiled(*leaves, scale), [*leaves, scale])
    theirs = torch.autograd.grad(loss(*leaves, scale), [*leaves, scale])
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.gpu
def test_a_step_replays_in_a_cuda_graph(device):
    query, key, value = points(Case(4, 3, 33, 33, 16, 16, 1), device)
    leaves = [x.requires_grad_() for p in (query, key, value) for x in p]
    scale = scales(3, device).requires_grad_()

    def step():
        out = polar_attention(*(PolarPoint(*leaves[i : i + 2]) for i in (0, 2, 4)), scale)
        return torch.autograd.grad(out.radius.sum() + out.direction[..., 0].sum(), [*leaves, scale])

    assert_a_graph_gives_the_same(step)
