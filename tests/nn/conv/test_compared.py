"""The layers that the polar ones are compared with, against their definitions on unfolded receptive fields."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from nn.conv.definitions import image
from torch import Tensor

from polarvit.geometry import (
    PolarPoint,
    ambient,
    centroid,
    from_ambient,
    from_ball,
    from_tangent0,
    gyroadd,
    gyroneg,
    gyroscale,
    to_ambient,
    to_ball,
)
from polarvit.nn import PolarUpsample2d
from polarvit.nn.baselines import PoincareLinear
from polarvit.nn.baselines.ball import exp0, log0
from polarvit.nn.baselines.lorentz import soft_radius_cap
from polarvit.nn.conv.ball import PoincareBatchNorm2d, PoincareConv2d, concatenated
from polarvit.nn.conv.lorentz import LorentzBatchNorm2d, LorentzConv2d, max_pool, upsample


def fields(x: Tensor, origin: Tensor) -> list[Tensor]:
    """The nine neighbours [B, H, W, n] of every pixel, `origin` outside."""
    b, h, w, n = x.shape
    padded = origin.expand(b, h + 2, w + 2, n).clone()
    padded[:, 1:-1, 1:-1] = x
    return [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]


def test_the_lorentz_convolution_is_concatenation_cap_and_layer() -> None:
    for k in (1.0, 2.0):
        torch.manual_seed(0)
        layer = LorentzConv2d(4, 5, 3, padding=1, k=k).double()
        x = to_ambient(image((2, 4, 5), 4, 1.5), k=k)
        joined = soft_radius_cap(ambient.concat(fields(x, ambient.origin(4, k=k, like=x)), k=k), k=k)
        weight = layer.weight[1:].permute(0, 2, 3, 1).flatten(1)
        h = F.linear(joined, torch.cat([layer.time_weight[1:, None], weight], 1), layer.bias[1:])
        torch.testing.assert_close(layer(x), ambient.from_space(h, k=k))
        assert sum(p.numel() for p in layer.parameters()) == 6 * (36 + 2)


def test_stride_and_dilation_of_the_compared_convolutions() -> None:
    """Every second pixel of the plain one; and a dilated one is a plain one on every second pixel."""
    torch.manual_seed(0)
    points = image((2, 6, 8), 4, 0.8)
    for x, make in ((to_ambient(points), LorentzConv2d), (to_ball(points), PoincareConv2d)):
        plain = make(4, 5, 3, padding=1).double()
        strided, dilated = make(4, 5, 3, stride=2, padding=1).double(), make(4, 5, 3, padding=2, dilation=2).double()
        for other in (strided, dilated):
            other.load_state_dict(plain.state_dict())
        torch.testing.assert_close(strided(x), plain(x)[:, ::2, ::2])
        for i, j in ((0, 0), (1, 0), (1, 1)):
            torch.testing.assert_close(dilated(x)[:, i::2, j::2], plain(x[:, i::2, j::2]))


def test_the_lorentz_batch_norm_is_that_of_the_geometry_and_a_cap() -> None:
    k = 1.5
    torch.manual_seed(0)
    layer = LorentzBatchNorm2d(4, momentum=0.5, k=k).double()
    with torch.no_grad():
        layer.bias.copy_(0.5 * torch.randn(4))
        layer.gain.fill_(1.3)
    x = image((3, 3, 4), 4, 1.0)
    mean = centroid(centroid(x.reshape(3, 12), k=k), k=k)
    centred = gyroadd(gyroneg(mean), x, k=k)
    scaled = gyroscale(centred, 1.3 / (centred.radius.mean() + layer.eps))
    wanted = soft_radius_cap(to_ambient(gyroadd(from_tangent0(layer.bias), scaled, k=k), k=k), k=k)
    torch.testing.assert_close(layer(to_ambient(x, k=k)), wanted, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(layer.running_spread, 0.5 + 0.5 * centred.radius.mean())
    for _ in range(50):
        trained = layer(to_ambient(x, k=k))
    torch.testing.assert_close(layer.eval()(to_ambient(x, k=k)), trained, rtol=1e-5, atol=1e-5)


def test_the_ambient_upsampling_and_pooling_are_the_polar_ones() -> None:
    x = image((2, 4, 4), 3, 1.5)
    wanted = to_ambient(PolarUpsample2d()(x, k=2.0), k=2.0)
    torch.testing.assert_close(upsample(to_ambient(x, k=2.0), k=2.0), wanted)
    assert from_ambient(max_pool(to_ambient(x))).shape == (2, 2, 2)


def test_the_poincare_convolution_is_beta_concatenation_and_layer() -> None:
    for k in (1.0, 10.0):
        torch.manual_seed(0)
        layer, flat = PoincareConv2d(4, 5, 3, padding=1).double(), PoincareLinear(36, 5, k=k).double()
        with torch.no_grad():
            layer.bias.copy_(0.3 * torch.randn(5))
            flat.bias.copy_(layer.bias)
            flat.weight.copy_(layer.weight.view(5, 4, 3, 3).permute(0, 2, 3, 1).flatten(1))
        x = to_ball(image((2, 4, 5), 4, 0.8))
        joined = concatenated(*fields(x, torch.zeros(4, dtype=torch.float64)))
        torch.testing.assert_close(layer(x, k=k), flat(math.sqrt(k) * joined) / math.sqrt(k))


def test_a_poincare_rise_is_one_layer_for_each_of_four_places() -> None:
    torch.manual_seed(0)
    layer = PoincareConv2d(4, 3, 1, rise=True).double()
    with torch.no_grad():
        layer.bias.copy_(0.3 * torch.randn(3))
    x = to_ball(image((2, 3, 5), 4, 0.8))
    out = layer(x)
    assert out.shape == (2, 6, 10, 3)
    for place in range(4):
        flat = PoincareLinear(4, 3).double()
        flat.load_state_dict({"weight": layer.weight[3 * place : 3 * place + 3], "bias": layer.bias})
        torch.testing.assert_close(out[:, place // 2 :: 2, place % 2 :: 2], flat(x))


def test_the_poincare_batch_norm_centres_and_scales() -> None:
    torch.manual_seed(0)
    layer = PoincareBatchNorm2d(4, momentum=0.5).double()
    k = 10.0
    x = to_ball(image((3, 3, 4), 4, 0.8))
    out = layer(x, k=k)
    distances = 2 * math.sqrt(k) * log0(out).norm(dim=-1)
    torch.testing.assert_close(distances.square().mean(), torch.ones((), dtype=torch.float64), rtol=1e-4, atol=0)
    mean = PolarPoint(*from_ball(layer.midpoint(x)))
    assert centroid(from_ball(x).reshape(-1)).radius.sub(mean.radius).abs() < 1e-9  # the gyromidpoint is the centroid
    for _ in range(50):
        trained = layer(x, k=k)
    torch.testing.assert_close(layer.eval()(x, k=k), trained, rtol=1e-4, atol=1e-5)


def test_beta_concatenation_of_one_point_is_that_point() -> None:
    x = exp0(torch.randn(5, 3, dtype=torch.float64))
    torch.testing.assert_close(concatenated(x), x)
