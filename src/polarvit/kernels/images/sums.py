"""The sums of weighted centroids: made, merged, and turned into points.

With V = sum w sinh a u, T = sum w cosh a, the centroid has the direction V/|V| and e^(2a) = (T + |V|)/(T - |V|), where
T - |V| = E + S, E = sum w e^-a, S = M2/(1 + |ubar|), all terms non-negative (`polarvit.geometry.centroid`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.scaled import exp_capped


class Sums(NamedTuple):
    """What centroids add up, [...], with e^-t taken out of P and M2."""

    mass: Tensor
    """P = sum w sinh a"""
    mean: Tensor
    """ubar = sum w sinh a u / P, [..., n]"""
    spread: Tensor
    """M2 = sum w sinh a |u - ubar|^2"""
    log_e: Tensor
    """ln sum w e^-a"""

    def point(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Rescaled radius and direction of the centroids."""
        length, direction = norm_and_direction(self.mean)
        return centroid_radius(self.mass * length, self.spread / (1 + length), self.log_e - t), direction


def merged(one: Sums, two: Sums, weight: float) -> Sums:
    """(1 - weight) of one block and `weight` of another, which merge like variances: by the difference of means."""
    left, right = (1 - weight) * one.mass, weight * two.mass
    mass = left + right
    part = right / torch.where(mass > 0, mass, torch.ones_like(mass))
    apart = two.mean - one.mean
    spread = (1 - weight) * one.spread + weight * two.spread + left * part * apart.square().sum(-1)
    log_e = torch.logaddexp(one.log_e + math.log(1 - weight), two.log_e + math.log(weight))
    return Sums(mass, one.mean + part.unsqueeze(-1) * apart, spread, log_e)


def centroid_radius(size: Tensor, gap: Tensor, log_e: Tensor) -> Tensor:
    """Rescaled radius from |V|, S and ln E, all three after a division by the same e^t; S and |V| may be 0."""
    return radius_of_logs(size, *centroid_logs(size, gap, log_e))


def centroid_logs(size: Tensor, gap: Tensor, log_e: Tensor) -> tuple[Tensor, Tensor]:
    """ln(T - |V|) and ln(T + |V|)."""
    tiny = torch.finfo(size.dtype).tiny
    minus = torch.where(gap > tiny, torch.logaddexp(torch.log(gap.clamp_min(tiny)), log_e), log_e)
    plus = torch.where(size > tiny, torch.logaddexp(torch.log(2 * size.clamp_min(tiny)), minus), minus)
    return minus, plus


def radius_of_logs(size: Tensor, minus: Tensor, plus: Tensor) -> Tensor:
    """1/2 ln (T + |V|)/(T - |V|), as an asinh below 1."""
    far = 0.5 * (plus - minus)
    return torch.where(far < 1, torch.asinh(size * exp_capped(-0.5 * (plus + minus))), far)
