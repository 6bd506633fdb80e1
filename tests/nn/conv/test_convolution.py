"""The polar convolution against its unfolded definition: values, precision, gradients, any radius."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from nn.conv.definitions import convolution, image, leaves, tangential

from polarvit.geometry import PolarPoint, concat, distance
from polarvit.nn import PolarConv2d
from polarvit.nn.conv.window import Field, by_slices, window_sum

EPS = 2.0**-24
FORMS = {
    "3x3": {"kernel_size": 3, "padding": 1},
    "1x1": {"kernel_size": 1},
    "stride": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilation": {"kernel_size": (3, 2), "padding": 2, "dilation": 2},
    "uneven": {"kernel_size": (1, 3), "stride": (2, 1), "padding": (0, 1)},
}


def layer(inputs: int, outputs: int, moved: float = 0.1, **form) -> PolarConv2d:
    """Away from the initial radius rule, where mistakes hide."""
    torch.manual_seed(0)
    made = PolarConv2d(inputs, outputs, **form).double()
    with torch.no_grad():
        for parameter in made.rule.parameters():
            parameter.add_(moved * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_a_polar_layer_on_joined_receptive_fields(form: str, k: float) -> None:
    made, x = layer(5, 6, **FORMS[form]), leaves(image((2, 6, 7), 5, 2.0))
    out, wanted = made(x, k=k), convolution(made, x, k)
    torch.testing.assert_close(out.radius, wanted.radius, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(out.direction, wanted.direction, rtol=1e-12, atol=1e-13)
    ways = out.map(torch.randn_like)
    ours, theirs = (
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(y, ways, strict=True)), [*x, *made.parameters()])
        for y in (out, wanted)
    )
    torch.testing.assert_close(tangential(x, ours[1]), tangential(x, theirs[1]), rtol=1e-9, atol=1e-11)
    for one, two in zip((ours[0], *ours[2:]), (theirs[0], *theirs[2:]), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("moved", [0.0, 0.1])
@pytest.mark.parametrize("radius", [1.0, 8.0, 12.0])
def test_float32_is_within_the_resolution_limit(radius: float, moved: float) -> None:
    """Each output against the definition in float64, in units of the limit at its own radius."""
    made = layer(8, 8, moved, kernel_size=3, padding=1)
    x = image((4, 16, 16), 8, radius, seed=int(radius)).map(torch.Tensor.float)
    exact = PolarPoint(x.radius.double(), F.normalize(x.direction.double(), dim=-1))
    sharp = made.float()
    out = sharp(x)
    truth = convolution(made.double(), exact)
    error = distance(PolarPoint(out.radius.double(), F.normalize(out.direction.double(), dim=-1)), truth)
    ratio = error / (EPS * (truth.radius + 1 + torch.sinh(truth.radius)))
    print(f"radius {radius:g}: median {ratio.median():.2f}, 99.9 % below {ratio.quantile(0.999):.2f}")
    assert ratio.median() < 2
    assert ratio.quantile(0.999) < 7


@pytest.mark.parametrize("radius", [1.0, 8.0, 12.0])
def test_float32_gradients_are_as_good_as_their_terms(radius: float) -> None:
    """Against float64, a gradient may be off by the roundoff of what is added up for it, not by the growth e^r."""
    made = layer(8, 8, kernel_size=3, padding=1)
    x = image((2, 8, 8), 8, radius, seed=3).map(torch.Tensor.float)
    found = []
    ways = image((2, 8, 8), 8, 1.0, seed=4)
    for dtype in (torch.float32, torch.float64):
        own = leaves(x.map(lambda y, dtype=dtype: y.to(dtype)))
        out = made.to(dtype)(own)
        loss = sum((a * b.to(dtype)).sum() for a, b in zip(out, ways, strict=True))
        parts = torch.autograd.grad(loss, [*own, *made.parameters()])
        found.append([part.double() for part in (parts[0], tangential(own, parts[1]), *parts[2:])])
    worst = max(float((one - two).norm() / (1 + two.norm())) for one, two in zip(*found, strict=True))
    print(f"radius {radius:g}: worst gradient off by {worst:.1e} of its size")
    assert worst < 3e-6


def test_several_images_are_joined_pixel_by_pixel_first() -> None:
    made = layer(8, 4, kernel_size=3, padding=1)
    one, two = image((2, 5, 4), 3, 2.0, 1), image((2, 5, 4), 5, 3.0, 2)
    out, wanted = made(one, two), made(concat([one, two]))
    torch.testing.assert_close(out.radius, wanted.radius)
    torch.testing.assert_close(out.direction, wanted.direction)


@pytest.mark.parametrize("radius", [0.0, 30.0, 1000.0])
def test_nothing_overflows(radius: float) -> None:
    made = layer(4, 5, kernel_size=3, padding=1).float()
    x = image((2, 5, 5), 4, 40.0)
    x = leaves(PolarPoint(x.radius + radius, x.direction).map(torch.Tensor.float))
    out = made(x)
    (out.radius.sum() + out.direction.sum()).backward()
    with torch.no_grad():
        truth = convolution(made.double(), x.map(torch.Tensor.double))
    torch.testing.assert_close(out.radius.double(), truth.radius, rtol=1e-5, atol=0)
    assert all(torch.isfinite(y.grad).all() for y in (*x, *made.parameters()))


def test_images_in_a_batch_do_not_touch_each_other() -> None:
    made = layer(4, 5, kernel_size=3, padding=1).float()
    x = image((2, 5, 5), 4, 2.0).map(torch.Tensor.float)
    far = PolarPoint(x.radius * torch.tensor([1.0, 400.0])[:, None, None], x.direction)
    torch.testing.assert_close(made(far).radius[0], made(x).radius[0], rtol=0, atol=0)


def test_the_origin_has_finite_gradients() -> None:
    made = layer(4, 5, kernel_size=3, padding=1).float()
    with torch.no_grad():
        made.time_weight.zero_()
    x = leaves(PolarPoint(torch.zeros(1, 6, 6), F.one_hot(torch.zeros(1, 6, 6, dtype=torch.long), 4).float()))
    out = made(x)
    assert out.radius.max() < 1e-15
    out.radius.sum().backward()
    assert all(torch.isfinite(y.grad).all() for y in (*x, *made.parameters()))


def test_it_counts_and_complains() -> None:
    made = PolarConv2d(4, 6, 3)
    assert sum(p.numel() for p in made.parameters()) == 6 * (36 + 1) + 36 + 3
    with pytest.raises(ValueError, match="sum to 4, got"):
        made(image((1, 4, 4), 5, 1.0))
    with pytest.raises(ValueError, match="stride must be 1 or more"):
        PolarConv2d(4, 6, 3, stride=0)
    with pytest.raises(ValueError, match="does not fit"):
        made(image((1, 2, 2), 4, 1.0).map(torch.Tensor.float))


def test_bf16_products_stay_near_and_points_full() -> None:
    made, x = layer(8, 8, kernel_size=3, padding=1).float(), image((1, 6, 6), 8, 2.0).map(torch.Tensor.float)
    with torch.autocast("cpu", torch.bfloat16):
        out = made(x)
    assert out.radius.dtype == out.direction.dtype == torch.float32
    torch.testing.assert_close(out.radius, made(x).radius, rtol=0.03, atol=0.03)


def test_window_sum_is_a_box_filter() -> None:
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    for form in FORMS.values():
        field = Field.of(
            "test", form["kernel_size"], form.get("stride", 1), form.get("padding", 0), form.get("dilation", 1)
        )
        ones = torch.ones(1, 1, *field.kernel, dtype=torch.float64)
        wanted = F.conv2d(x.unsqueeze(1), ones, None, *field[1:]).squeeze(1)
        torch.testing.assert_close(window_sum(x, field), wanted)
        torch.testing.assert_close(by_slices(x, field), wanted)


def test_window_sums_go_through_one_operation_each_way() -> None:
    """Dozens of small kernels on a GPU otherwise, for every convolution of a net."""
    x = torch.rand(1, 6, 6, requires_grad=True)
    with torch.profiler.profile() as seen:
        window_sum(x, Field((3, 3), (1, 1), (1, 1), (1, 1))).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert {"aten::avg_pool2d", "aten::avg_pool2d_backward"} <= names
    assert "aten::narrow" not in names
