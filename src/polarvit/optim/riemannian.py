"""Riemannian AdamW in polar form.

Ordinary parameters get PyTorch's AdamW, fused or foreach. Points of hyperbolic space, stored as v = r u, move on the
manifold (after Bdeir et al., 2025), every quantity in the polar frame, where nothing cancels: `points.moved` has the
equations.

The decay is a radial move, and radial moves leave frame components as they are; so does a change of curvature, which
keeps v (log at the origin with the old k, exp with the new). A learnable curvature therefore needs no more than to
move last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from polarvit.geometry import PolarTangent
from polarvit.optim.points import moved, moved_compiled, worth_compiling
from polarvit.parameters import Role

LIVE = ("anchors", "curvature", "compile")
"""Group entries that are no part of the optimizer's state: they belong to the model or to the machine."""


class RiemannianAdamW(Optimizer):
    """AdamW for models with points: `RiemannianAdamW(param_groups(model, lr, weight_decay))`.

    A plain iterable of parameters is treated as ordinary ones. `capturable` keeps step counts on the device for CUDA
    graphs (lr may then be a tensor); `fused` and `foreach` choose the implementation for ordinary parameters as in
    `torch.optim.AdamW`. `compile` does it for points: True runs their step through `torch.compile` (seven launches on a
    GPU instead of three hundred, a few seconds at the first step), False as plain PyTorch, None compiles float32 points
    on CUDA where Triton is installed. Sparse gradients are not supported.
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
        compile: bool | None = None,
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
            "compile": compile,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A learnable curvature stays last: it moves after everything that lives in the space it describes."""
        super().add_param_group(param_group)
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
        # The fused update takes a few dozen tensors a launch and is as slow as the largest: large ones go together.
        params = sorted((p for p in group["params"] if p.grad is not None), key=lambda p: -p.numel())
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
        n = params[0].shape[-1]
        moments, squares = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
        v, g, moment, square = _joined(params, [p.grad for p in params], moments, squares)  # type: ignore[misc]
        torch._foreach_add_([s["step"] for s in states], 1)
        steps = torch.stack([s["step"] for s in states]).to(v.device)
        step = torch.cat([one.expand(x.numel()) for one, x in zip(steps.unbind(), squares, strict=True)])
        new = self._moved(group, v.view(-1, n), g.view(-1, n), moment.view(-1, n + 1), square, step)
        _part(new, params, moments, squares)

    def _moved(
        self, group: dict[str, Any], v: Tensor, g: Tensor, moment: Tensor, square: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """New points [N, n], moments [N, n+1] and squares [N], by `points.moved`, compiled or not; `step` [N]."""
        wanted = group["compile"]
        function = moved_compiled if (worth_compiling(v) if wanted is None else wanted) else moved
        return function(
            v, g, PolarTangent(moment[:, 0], moment[:, 1:]), square, step, group["lr"],
            k=curvature_of(group), betas=tuple(group["betas"]), eps=group["eps"], decay=group["weight_decay"],
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Without anchors and curvature, which are the model's, and without the choice to compile."""
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


def curvature_of(group: dict[str, Any]) -> float | Tensor:
    """k of a group of points; a learnable one is stored as ln k."""
    curvature = group.get("curvature", 1.0)
    return curvature.detach().exp() if isinstance(curvature, Tensor) else float(curvature)


def _step_counter(p: Tensor, on_device: bool) -> Tensor:
    return torch.zeros((), dtype=torch.float32, device=p.device if on_device else "cpu")


def _joined(*lists: list[Tensor]) -> tuple[Tensor, ...]:
    """The entries of each list, one after the other in a vector: all vectors in one copy, so one launch."""
    whole = torch.cat([x.reshape(-1) for xs in lists for x in xs])
    return whole.split([sum(x.numel() for x in xs) for xs in lists])


def _part(joined: tuple[Tensor, ...], *lists: list[Tensor]) -> None:
    """The way back: the entries of each tensor into the members of its list, in one launch too."""
    parts = [x.view(-1).split([y.numel() for y in ys]) for x, ys in zip(joined, lists, strict=True)]
    members = [y for ys in lists for y in ys]
    torch._foreach_copy_(members, [x.view_as(y) for x, y in zip(sum(parts, ()), members, strict=True)])


def _alike(params: list[Tensor]) -> list[list[Tensor]]:
    batches: dict[tuple[Any, ...], list[Tensor]] = {}
    for p in params:
        batches.setdefault((p.shape[-1], p.dtype, p.device), []).append(p)
    return list(batches.values())
