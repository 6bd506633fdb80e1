"""Riemannian AdamW in polar form: the published path, the decay step, roles, state."""

import copy

import geoopt
import pytest
import torch
from torch import nn

from polarvit.geometry import from_tangent0, squared_distance, to_ambient
from polarvit.models import create_model
from polarvit.nn import PolarEmbedding
from polarvit.optim import AmbientRiemannianAdamW, RiemannianAdamW, param_groups
from polarvit.optim.decay import decayed_radius
from polarvit.parameters import CURVATURE, MANIFOLD, Role, walk


class Points(nn.Module):
    """Three learnable points of H^4."""

    roles = {"v": MANIFOLD}  # noqa: RUF012 - the declaration under test

    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.v = nn.Parameter(start.clone())


def weighted_loss(points, goal, k):
    return (squared_distance(points, goal, k=k) * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)).sum()


def test_it_walks_the_path_of_geoopts_riemannian_adam():
    torch.manual_seed(0)
    start = torch.randn(3, 4, dtype=torch.float64)
    goal = from_tangent0(1.5 * torch.randn(3, 4, dtype=torch.float64))
    ours = Points(start)
    optimizer = RiemannianAdamW(param_groups(ours, lr=0.05, weight_decay=0.0))
    manifold = geoopt.Lorentz(k=1.0)
    theirs = geoopt.ManifoldParameter(to_ambient(from_tangent0(start)), manifold=manifold)
    reference = geoopt.optim.RiemannianAdam([theirs], lr=0.05)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    target = to_ambient(goal)
    for _ in range(60):
        optimizer.zero_grad()
        weighted_loss(from_tangent0(ours.v), goal, 1.0).backward()
        optimizer.step()
        reference.zero_grad()
        (manifold.dist(theirs, target).square() * weights).sum().backward()
        reference.step()
    gap = (to_ambient(from_tangent0(ours.v)) - theirs).abs().max()
    assert gap < 1e-6, gap


@pytest.mark.parametrize(("radius", "expected"), [(8.0, 7.9853), (9.0, 8.9610), (12.0, 11.5170)])
def test_the_decay_step_in_float32_is_the_true_one(radius, expected):
    decayed = decayed_radius(torch.tensor(radius), 1e-5)
    assert decayed.dtype == torch.float32
    assert abs(decayed.item() - expected) < 5e-5


def test_decay_is_the_centroid_with_the_origin():
    from polarvit.geometry import PolarPoint, centroid

    a = torch.tensor([0.0, 1e-6, 0.3, 2.0, 8.0, 12.0, 30.0, 100.0, 700.0], dtype=torch.float64)
    for w in (1e-5, 1e-2, 0.5):
        pair = PolarPoint(torch.stack([a, torch.zeros_like(a)], -1), torch.ones(*a.shape, 2, 1, dtype=a.dtype))
        expected = centroid(pair, torch.tensor([1 - w, w], dtype=a.dtype).expand(len(a), 2)).radius
        torch.testing.assert_close(decayed_radius(a, w), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("k", [0.5, 2.3])
def test_points_reach_their_goal_for_any_curvature(k):
    torch.manual_seed(1)
    goal = from_tangent0(torch.randn(3, 4, dtype=torch.float64))
    points = Points(torch.zeros(3, 4, dtype=torch.float64))
    optimizer = RiemannianAdamW(param_groups(points, lr=0.05, weight_decay=0.0, k=k))
    for _ in range(300):
        optimizer.zero_grad()
        loss = weighted_loss(from_tangent0(points.v), goal, k)
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3


def test_a_far_point_decays_inward_in_float32():
    points = Points(torch.tensor([[12.0, 0.0]]))
    optimizer = RiemannianAdamW(param_groups(points, lr=1e-3, weight_decay=1e-2))
    points.v.grad = torch.zeros_like(points.v)
    optimizer.step()
    assert abs(points.v[0, 0].item() - 11.5170) < 5e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_the_moment_of_a_far_point_survives_the_rounding_of_directions(dtype):
    """Ten steps outward: rounding a direction moves a point far at these radii, and must not turn its moment."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(64, 5, generator=generator, dtype=torch.float64)
    u = u / u.norm(dim=-1, keepdim=True)
    radii = torch.linspace(10, 90, 64, dtype=torch.float64)
    points = Points((radii.unsqueeze(-1) * u).to(dtype))
    optimizer = RiemannianAdamW(param_groups(points, lr=1e-2, weight_decay=0.0))
    for step in range(1, 11):
        points.v.grad = -u.to(dtype)
        optimizer.step()
        radial = optimizer.state[points.v]["exp_avg"][:, 0]
        torch.testing.assert_close(radial, torch.full_like(radial, 0.9**step - 1), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(points.v.norm(dim=-1), (radii + 0.1).to(dtype), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("cls", [RiemannianAdamW, AmbientRiemannianAdamW])
def test_points_that_joined_late_count_their_own_steps(cls):
    """Of two tables in one optimizer the second gets gradients in the last two steps of two hundred alone."""
    torch.manual_seed(0)
    both = nn.ModuleList([PolarEmbedding(3, 4), PolarEmbedding(2, 4)]).double()
    alone = copy.deepcopy(both)
    together = cls(param_groups(both, 0.05, 0.01))
    apart = [cls(param_groups(table, 0.05, 0.01)) for table in alone]
    for step in range(200):
        for index in range(2 if step >= 198 else 1):
            both[index].v.grad = torch.randn_like(both[index].v)
            alone[index].v.grad = both[index].v.grad.clone()
        for optimizer in (together, *apart):
            optimizer.step()
    for one, two in zip(both, alone, strict=True):
        torch.testing.assert_close(one.v, two.v, rtol=1e-12, atol=1e-12)


def narrow(**overrides):
    return create_model(
        "polar_vit_tiny", num_classes=5, img_size=8, patch_size=4, depth=1, dim=16, mlp_dim=16, heads=2, **overrides
    )


def test_every_parameter_is_in_exactly_one_group_and_decays_by_role():
    model = narrow(learn_k=True)
    groups = {group["role"]: group for group in param_groups(model, 1e-3, 0.05)}
    assert sum(len(group["params"]) for group in groups.values()) == len(list(model.parameters()))
    assert groups["no_decay"]["weight_decay"] == groups["curvature"]["weight_decay"] == 0
    assert groups["ordinary"]["weight_decay"] == groups["anchored"]["weight_decay"] == 0.05
    rates = {id(block.attention.position.rate) for block in model.blocks}
    assert rates <= {id(p) for p in groups["no_decay"]["params"]}
    for decays, role in ((False, "no_decay"), (True, "ordinary")):
        groups = {group["role"]: group for group in param_groups(model, 1e-3, 0.05, decay_tables=decays)}
        assert id(model.embed.table) in {id(p) for p in groups[role]["params"]}


def test_decay_can_be_told_to_spare_nothing():
    groups = {g["role"]: g for g in param_groups(narrow(), 1e-3, 0.05, decay_tables=True, decay_gains=True)}
    assert "no_decay" not in groups
    assert all(group["weight_decay"] == 0.05 for group in groups.values())


def test_anchored_parameters_decay_to_their_anchor_and_others_to_zero():
    model = narrow()
    layer = model.blocks[0].mlp.fc1
    with torch.no_grad():
        layer.rule.beta.fill_(2.0)
        layer.weight.fill_(2.0)
    optimizer = RiemannianAdamW(param_groups(model, lr=1.0, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(30):
        optimizer.step()
    torch.testing.assert_close(layer.rule.beta.detach(), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert layer.weight.abs().max() < 1e-5


def test_a_learned_curvature_moves_last_and_carries_points_along():
    model = narrow(learn_k=True, k=1.5)
    optimizer = RiemannianAdamW(param_groups(model, lr=1e-2, weight_decay=0.05))
    assert optimizer.param_groups[-1]["role"] == CURVATURE.value
    before = model.log_k.item()
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()
        optimizer.step()
    assert model.log_k.item() != before
    assert all(torch.isfinite(p).all() for p in model.parameters())
    manifold = next(group for group in optimizer.param_groups if group["role"] == MANIFOLD.value)
    assert manifold["curvature"] is model.log_k


def test_a_curvature_stays_last_when_points_are_added():
    optimizer = RiemannianAdamW(param_groups(narrow(learn_k=True), lr=1e-2, weight_decay=0.05))
    for group in param_groups(PolarEmbedding(3, 4), lr=1e-2, weight_decay=0.05):
        optimizer.add_param_group(group)
    roles = [group["role"] for group in optimizer.param_groups]
    assert roles.count(MANIFOLD.value) == 2
    assert roles.index(CURVATURE.value) == len(roles) - 1


@pytest.mark.parametrize("wrap", [nn.DataParallel, nn.Sequential, lambda model: nn.ModuleDict({"a": model})])
def test_the_curvature_of_a_wrapped_model_is_the_models(wrap):
    fixed, learned = narrow(k=2.5), narrow(k=2.5, learn_k=True)
    for model, expected in ((fixed, 2.5), (learned, learned.log_k)):
        groups = {group["role"]: group for group in param_groups(wrap(model), 1e-3, 0.05)}
        assert groups["manifold"]["curvature"] is expected or groups["manifold"]["curvature"] == expected
    assert param_groups(PolarEmbedding(3, 4), 1e-3, 0.05)[0]["curvature"] == 1.0


def test_several_curvatures_must_be_told_apart():
    flat, bent, learned = narrow(k=1.0), narrow(k=2.5), narrow(k=1.0, learn_k=True)
    with pytest.raises(ValueError, match=r"points of one curvature .* found k = 1, k = 2\.5; give each part"):
        param_groups(nn.ModuleList([flat, bent]), 1e-3, 0.05)
    with torch.no_grad(), pytest.raises(ValueError, match=r"expected, found 1\.log_k, k = 1;"):
        param_groups(nn.ModuleList([flat, learned]), 1e-3, 0.05)
    with pytest.raises(ValueError, match=r"expected, found 0\.log_k, 1\.log_k;"):
        param_groups(nn.ModuleList([learned, narrow(learn_k=True)]), 1e-3, 0.05)
    groups = {group["role"]: group for group in param_groups(nn.ModuleList([flat, bent]), 1e-3, 0.05, k=2.0)}
    assert groups["manifold"]["curvature"] == 2.0


def test_an_attribute_k_that_is_no_curvature_is_not_taken_for_one():
    model = nn.ModuleList([nn.Linear(2, 2), narrow(k=2.5)])
    model[0].k = nn.Linear(2, 2)  # keys, as many call them
    model.k = True
    model[0].add_module("largest", nn.Identity())
    model[0].largest.k = 5  # of a top-k
    groups = {group["role"]: group for group in param_groups(model, 1e-3, 0.05)}
    assert groups["manifold"]["curvature"] == 2.5


def test_curvatures_that_only_rounding_tells_apart_are_one():
    model = nn.ModuleList([PolarEmbedding(3, 4), PolarEmbedding(3, 4)])
    model[0].k, model[1].k = 0.1, torch.tensor(0.1)
    assert param_groups(model, 1e-3, 0.05)[0]["curvature"] == pytest.approx(0.1)


def trained(model, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        images = torch.randn(4, 3, 8, 8, generator=generator)
        torch.nn.functional.cross_entropy(model(images), torch.arange(4)).backward()
        optimizer.step()


def test_state_saves_and_loads_to_the_same_path():
    torch.manual_seed(2)
    model = narrow(drop_path=0.0)
    optimizer = RiemannianAdamW(param_groups(model, lr=1e-2, weight_decay=0.05))
    trained(model, optimizer, 3, seed=1)
    twin = copy.deepcopy(model)
    again = RiemannianAdamW(param_groups(twin, lr=1e-2, weight_decay=0.05))
    state = copy.deepcopy(optimizer.state_dict())
    assert not any("anchors" in group or "curvature" in group for group in state["param_groups"])
    again.load_state_dict(state)
    trained(model, optimizer, 3, seed=2)
    trained(twin, again, 3, seed=2)
    for one, two in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, two)


def test_ordinary_parameters_get_plain_adamw():
    torch.manual_seed(3)
    layer = nn.Linear(4, 3)
    twin = copy.deepcopy(layer)
    ours = RiemannianAdamW(layer.parameters(), lr=1e-2, weight_decay=0.1)
    plain = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(5):
        x = torch.randn(8, 4)
        for model, optimizer in ((layer, ours), (twin, plain)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    assert torch.equal(layer.weight, twin.weight)


def test_capturable_takes_a_tensor_learning_rate():
    model = narrow(drop_path=0.0)
    twin = copy.deepcopy(model)
    rate = torch.tensor(1e-2)
    ours = RiemannianAdamW(param_groups(model, lr=rate, weight_decay=0.05), capturable=False, foreach=False)
    theirs = RiemannianAdamW(param_groups(twin, lr=1e-2, weight_decay=0.05), foreach=False)
    trained(model, ours, 2, seed=4)
    trained(twin, theirs, 2, seed=4)
    for one, two in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=2e-6)  # lr itself is rounded to float32


def test_the_bias_point_of_a_norm_leaves_the_origin():
    torch.manual_seed(5)
    model = narrow(drop_path=0.0)
    optimizer = RiemannianAdamW(param_groups(model, lr=1e-2, weight_decay=0.05))
    trained(model, optimizer, 1, seed=6)
    norms = [t.parameter for t in walk(model) if t.role is Role.MANIFOLD]
    assert all(p.norm() > 1e-3 for p in norms)


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1.0}, {"weight_decay": -0.1}])
def test_bad_options_are_refused(bad):
    with pytest.raises(ValueError, match="RiemannianAdamW"):
        RiemannianAdamW([nn.Parameter(torch.zeros(2))], **bad)


def test_parameters_without_their_model_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a model, got generator; .*not model\.parameters\(\)"):
        param_groups(nn.Linear(2, 2).parameters(), 1e-3, 0.0)
