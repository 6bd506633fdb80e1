"""Riemannian AdamW in polar form.

Ordinary parameters get PyTorch's AdamW, fused or foreach. Points of hyperbolic space, stored as v = r u, move on the
manifold (after Bdeir et al., 2025), every quantity in the polar frame, where nothing cancels:

    x  <- centroid({x, o}; 1 - lr wd, lr wd)                   decay: a closed form in the radius
    xi  = (g.u, (a/sinh a)(g - (g.u)u))                        Riemannian gradient of g = dL/dv
    m  <- b1 m + (1 - b1) xi,   s <- b2 s + (1 - b2) |xi|^2    one second moment per point
    x  <- exp_x(-lr m^/(sqrt(s^) + eps)),   m <- transported along

The decay is a radial move, and radial moves leave frame components as they are; so does a change of curvature, which
keeps v (log at the origin with the old k, exp with the new). A learnable curvature therefore needs no more than to
move last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from polarvit.geometry import PolarPoint, PolarTangent, exp_map, to_tangent0, transport
from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.scaled import rescale, restore, sh
from polarvit.optim.decay import decayed_radius
from polarvit.parameters import Role

LIVE = ("anchors", "curvature")
"""Group entries that belong to the model, not to the optimizer's state."""


class RiemannianAdamW(Optimizer):
    """AdamW for models with points: `RiemannianAdamW(param_groups(model, lr, weight_decay))`.

    A plain iterable of parameters is treated as ordinary ones. `capturable` keeps step counts on the device for CUDA
    graphs (lr may then be a tensor); `fused` and `foreach` choose the implementation for ordinary parameters as in
    `torch.optim.AdamW`. Sparse gradients are not supported.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        if not isinstance(lr, Tensor) and not lr >= 0:
            raise ValueError(f"RiemannianAdamW: lr must be non-negative, got {lr}")
        if not (0 <= betas[0] < 1 and 0 <= betas[1] < 1):
            raise ValueError(f"RiemannianAdamW: betas must be in [0, 1), got {betas}")
        if not eps >= 0 or not weight_decay >= 0:
            raise ValueError(f"RiemannianAdamW: eps and weight_decay must be non-negative, got {eps}, {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "role": Role.ORDINARY.value,
            "capturable": capturable,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)
        # A learnable curvature moves after everything that lives in the space it describes.
        self.param_groups.sort(key=lambda group: group["role"] == Role.CURVATURE.value)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["role"] == Role.MANIFOLD.value:
                self._step_points(group)
            else:
                self._step_ordinary(group)
        return loss

    def _step_ordinary(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        fused = group["fused"]
        if fused is None and group["foreach"] is None:
            fused = all(p.is_cuda and p.is_floating_point() for p in params)
        for p in params:
            if not self.state[p]:
                self.state[p] = {
                    "step": _step_counter(p, group["capturable"] or bool(fused)),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
        decay = group["weight_decay"]
        if group["role"] == Role.ANCHORED.value and decay:
            pairs = [(p, a) for p, a in zip(group["params"], group["anchors"], strict=True) if p.grad is not None]
            gaps = torch._foreach_sub([p for p, _ in pairs], [a for _, a in pairs])
            torch._foreach_mul_(gaps, group["lr"] * decay)
            torch._foreach_sub_([p for p, _ in pairs], gaps)
            decay = 0.0
        states = [self.state[p] for p in params]
        adamw(
            params,
            [p.grad for p in params],
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [],
            [s["step"] for s in states],
            foreach=group["foreach"],
            capturable=group["capturable"],
            fused=fused,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=decay,
            eps=group["eps"],
            maximize=False,
        )

    def _step_points(self, group: dict[str, Any]) -> None:
        """All points of one dimension move together: a handful of kernels however many parameters there are."""
        params = [p for p in group["params"] if p.grad is not None]
        for p in params:
            if not self.state[p]:
                self.state[p] = {
                    "step": _step_counter(p, group["capturable"] or p.is_cuda),
                    "exp_avg": p.new_zeros(*p.shape[:-1], p.shape[-1] + 1),
                    "exp_avg_sq": p.new_zeros(p.shape[:-1]),
                }
        for batch in _alike(params):
            self._move(group, batch)

    def _move(self, group: dict[str, Any], params: list[Tensor]) -> None:
        states = [self.state[p] for p in params]
        n, rows = params[0].shape[-1], [p.numel() // p.shape[-1] for p in params]
        v = torch.cat([p.reshape(-1, n) for p in params])
        g = torch.cat([p.grad.reshape(-1, n) for p in params])  # type: ignore[union-attr]
        moment = torch.cat([s["exp_avg"].reshape(-1, n + 1) for s in states])
        square = torch.cat([s["exp_avg_sq"].reshape(-1) for s in states])
        torch._foreach_add_([s["step"] for s in states], 1)
        step = states[0]["step"].to(v.device, torch.float64)
        bias1, bias2 = (-torch.expm1(step * math.log(beta)).to(v) if beta else 1.0 for beta in group["betas"])
        moved, moment = self._moved(group, v, g, moment, square, bias1, bias2)

        for old, new in (
            (params, moved),
            ([s["exp_avg"] for s in states], moment),
            ([s["exp_avg_sq"] for s in states], square),
        ):
            torch._foreach_copy_(old, [part.view_as(x) for part, x in zip(new.split(rows), old, strict=True)])

    def _moved(
        self, group: dict[str, Any], v: Tensor, g: Tensor, moment: Tensor, square: Tensor, bias1: Any, bias2: Any
    ) -> tuple[Tensor, Tensor]:
        """New points [N, n] and moments [N, n+1] from points v, gradients g and moments; `square` is updated."""
        lr, k, (beta1, beta2) = group["lr"], curvature_of(group), group["betas"]
        radius, u = norm_and_direction(v)
        a = rescale(radius, k)
        xi = polar_gradient(a, u, g)
        if group["weight_decay"]:
            radius = restore(decayed_radius(a, decay_weight(lr, group["weight_decay"], a)), k)
        x = PolarPoint(radius, u)

        moment.lerp_(xi, 1 - beta1)
        square.lerp_(xi.square().sum(-1), 1 - beta2)
        size = lr / bias1 / (torch.sqrt(square / bias2) + group["eps"])
        way = -size.unsqueeze(-1) * moment
        moved = exp_map(x, PolarTangent(way[:, 0], way[:, 1:]), k=k)
        carried = transport(x, moved, PolarTangent(moment[:, 0], moment[:, 1:]), k=k)
        # Rounding leaves a trace along u, which would grow over many transports.
        across = carried.perpendicular
        across = across - (across * moved.direction).sum(-1, keepdim=True) * moved.direction
        return to_tangent0(moved), torch.cat([carried.radial.unsqueeze(-1), across], -1)

    def state_dict(self) -> dict[str, Any]:
        """Without anchors and curvature: those are the model's."""
        state = super().state_dict()
        state["param_groups"] = [
            {key: value for key, value in group.items() if key not in LIVE} for group in state["param_groups"]
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        live = [{key: group[key] for key in LIVE if key in group} for group in self.param_groups]
        for mine, theirs in zip(self.param_groups, state_dict["param_groups"], strict=False):
            if mine["role"] != theirs.get("role"):
                raise ValueError(
                    f"load_state_dict: group roles differ: {mine['role']} here, {theirs.get('role')} there"
                )
        super().load_state_dict(state_dict)
        for group, kept in zip(self.param_groups, live, strict=True):
            group.update(kept)


def polar_gradient(a: Tensor, u: Tensor, g: Tensor) -> Tensor:
    """Riemannian gradient [..., n+1] (radial first) of a loss whose gradient in v = r u is g, at rescaled radius a."""
    along = (g * u).sum(-1, keepdim=True)
    ratio = torch.where(a > 0, a * torch.exp(-a) / torch.where(a > 0, sh(a), 1.0), 1.0)
    return torch.cat([along, ratio.unsqueeze(-1) * (g - along * u)], -1)


def curvature_of(group: dict[str, Any]) -> float | Tensor:
    """k of a group of points; a learnable one is stored as ln k."""
    curvature = group.get("curvature", 1.0)
    return curvature.detach().exp() if isinstance(curvature, Tensor) else float(curvature)


def _step_counter(p: Tensor, on_device: bool) -> Tensor:
    return torch.zeros((), dtype=torch.float32, device=p.device if on_device else "cpu")


def decay_weight(lr: float | Tensor, decay: float, like: Tensor) -> Any:
    """The weight lr wd of the origin in one step."""
    return (lr * decay).to(like) if isinstance(lr, Tensor) else lr * decay


def _alike(params: list[Tensor]) -> list[list[Tensor]]:
    batches: dict[tuple[Any, ...], list[Tensor]] = {}
    for p in params:
        batches.setdefault((p.shape[-1], p.dtype, p.device), []).append(p)
    return list(batches.values())
