"""Trees, their place in the hyperbolic plane, and how far distances there are from those of the tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, gyroadd, gyroneg

F64 = torch.float64


@dataclass(frozen=True)
class Tree:
    """A complete tree in which every inner node has `branches` children, the root first, level after level."""

    branches: int
    depth: int

    @property
    def levels(self) -> list[range]:
        """The nodes of each level."""
        sizes = [self.branches**level for level in range(self.depth + 1)]
        starts = [sum(sizes[:level]) for level in range(self.depth + 1)]
        return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    @property
    def nodes(self) -> int:
        return self.levels[-1].stop

    @property
    def parents(self) -> list[int]:
        """The parent of every node; of the root, itself."""
        return [0] + [(node - 1) // self.branches for node in range(1, self.nodes)]

    def distances(self) -> Tensor:
        """Edges between every pair of nodes [nodes, nodes], float64."""
        steps = torch.zeros(self.nodes, self.nodes, dtype=F64)
        for node, parent in enumerate(self.parents[1:], 1):
            steps[node, :node] = steps[:node, node] = steps[parent, :node] + 1
        return steps


def at(points: PolarPoint, index: Any) -> PolarPoint:
    """Some of the points."""
    return PolarPoint(points.radius[index], points.direction[index])


def place(tree: Tree, length: float) -> PolarPoint:
    """The tree in the hyperbolic plane with edges of this length (Sarkar, 2011), float64.

    A node's children lie around it at even angles to each other and to its parent: child = node (+) (length, angle).
    Two leaves are then nearly as far apart as the way through the tree is long, the more nearly the longer the edges.
    """
    levels, count = tree.levels, tree.branches
    points = PolarPoint(torch.zeros(tree.nodes, dtype=F64), torch.eye(2, dtype=F64)[:1].repeat(tree.nodes, 1))
    for level, below in pairwise(levels):
        nodes = at(points, slice(level.start, level.stop))
        if level.start == 0:
            back, turns = torch.zeros(1, dtype=F64), torch.arange(count, dtype=F64) / count
        else:
            above = torch.tensor([tree.parents[node] for node in level])
            seen = gyroadd(gyroneg(nodes), at(points, above)).direction
            back, turns = torch.atan2(seen[:, 1], seen[:, 0]), torch.arange(1, count + 1, dtype=F64) / (count + 1)
        angle = (back.unsqueeze(1) + 2 * math.pi * turns).flatten()
        step = PolarPoint(torch.full_like(angle, length), torch.stack([angle.cos(), angle.sin()], -1))
        children = gyroadd(nodes.map(lambda x: x.repeat_interleave(count, 0)), step)
        points.radius[below.start : below.stop] = children.radius
        points.direction[below.start : below.stop] = children.direction
    return points


@dataclass(frozen=True)
class Distortion:
    """What becomes of the distances of a tree: found over wanted, over all pairs of nodes."""

    average: float
    """Mean of |found/wanted - 1|; NaN if a distance is not a number."""
    worst: float
    """Largest of found/wanted over the smallest: 1 is a perfect copy, at any scale."""
    lost: float
    """Share of pairs whose distance is not finite."""

    @classmethod
    def of(cls, found: Tensor, wanted: Tensor) -> Distortion:
        ratio = found.detach().to(F64) / wanted
        lost = (~ratio.isfinite()).to(F64).mean().item()
        if lost:
            return cls(math.nan, math.nan, lost)
        worst = (ratio.max() / ratio.min()).item() if ratio.min() > 0 else math.inf
        return cls((ratio - 1).abs().mean().item(), worst, lost)
