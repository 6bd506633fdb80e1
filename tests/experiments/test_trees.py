"""Trees in the plane: placed with the right edges, measured rightly, kept and trained as claimed."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from polarvit.experiments import Settings, trees
from polarvit.experiments.trees.spaces import SPACES, installed
from polarvit.experiments.trees.tree import Distortion, Tree, at, place
from polarvit.geometry import distance


def test_distances_in_a_tree_are_counted_in_edges() -> None:
    tree = Tree(2, 2)
    assert tree.nodes == 7
    assert tree.parents == [0, 0, 0, 1, 1, 2, 2]
    steps = tree.distances()
    assert torch.equal(steps, steps.T)
    assert [steps[3, node].item() for node in range(7)] == [2, 1, 3, 0, 2, 4, 4]


@pytest.mark.parametrize("length", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("branches", [2, 3])
def test_every_edge_has_the_length_asked_for_and_neighbours_lie_at_even_angles(branches: int, length: float) -> None:
    tree = Tree(branches, 3)
    points, parents = place(tree, length), torch.tensor(tree.parents[1:])
    edges = distance(at(points, slice(1, None)), at(points, parents))
    torch.testing.assert_close(edges, torch.full_like(edges, length), rtol=1e-9, atol=0)
    children = torch.tensor([node for node in range(1, tree.nodes) if tree.parents[node] == 1])
    around = torch.cat([children, torch.tensor([0])])  # of node 1: its children and its parent
    apart = distance(at(points, around), at(points, around.roll(1)))
    torch.testing.assert_close(apart, apart[:1].expand_as(apart), rtol=1e-9, atol=0)


def test_longer_edges_distort_less() -> None:
    tree = Tree(2, 4)
    one, other = torch.triu_indices(tree.nodes, tree.nodes, 1)
    found = []
    for length in (1.0, 2.0, 4.0, 8.0):
        points = place(tree, length)
        found.append(Distortion.of(distance(at(points, one), at(points, other)), length * tree.distances()[one, other]))
    assert all(a.worst > b.worst for a, b in pairwise(found))
    assert found[-1].worst < 1.05


def test_distortion_is_one_for_a_scaled_copy_and_names_what_is_lost() -> None:
    wanted = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    scaled = Distortion.of(3 * wanted, wanted)
    assert (scaled.average, scaled.worst, scaled.lost) == (2.0, 1.0, 0.0)
    assert Distortion.of(torch.tensor([0.5, 2.0, 4.0]), wanted).worst == 2.0
    assert Distortion.of(torch.tensor([0.0, 2.0, 4.0]), wanted).worst == math.inf
    lost = Distortion.of(torch.tensor([math.nan, 2.0, 4.0]), wanted)
    assert lost.lost == pytest.approx(1 / 3)
    assert math.isnan(lost.worst)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.key)
def test_every_space_stores_the_points_it_is_given(space) -> None:
    if space not in installed()[0]:
        pytest.skip(f"{space.needs} is not installed")
    tree = Tree(2, 3)
    points = place(tree, 1.0)
    stored = space.store(points)
    assert distance(stored.points(), points).max() < 1e-4
    one, other = torch.triu_indices(tree.nodes, tree.nodes, 1)
    truth = distance(at(points, one), at(points, other))
    torch.testing.assert_close(stored.distance(one, other).detach().double(), truth, rtol=1e-3, atol=1e-3)
    before = stored.points()
    optimizer = stored.optimizer(0.1)
    stored.distance(one, other).sum().backward()
    optimizer.step()
    assert distance(stored.points(), before).max() > 1e-2


def test_a_quick_look_prints_and_records_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trees.run(Settings(tmp_path, quick=True)) == []
    record = json.loads((tmp_path / "trees-quick.json").read_text())
    polar = [row for row in record["rows"] if row["space"] == "polar"]
    ambient = [row for row in record["rows"] if row["space"] == "ambient"]
    assert all(row["trained"]["lost"] == 0 for row in polar)
    assert ambient[-1]["kept"]["lost"] > 0
    assert ambient[-1]["trained"] is None
    assert (
        record["summary"]["polar"]
        == "within a tenth of float64 to radius 11.2 placed (worst distortion), 11.2 trained (average)"
    )
    assert "ambient" in capsys.readouterr().out


def test_claims_fail_where_polar_float32_is_worse_or_lost() -> None:
    def row(space: str, average: float, lost: float = 0.0, radius: float = 9.0) -> dict[str, object]:
        found = {"average": average, "worst": 1.0, "lost": lost}
        return {"space": space, "length": radius, "largest_radius": radius, "kept": found, "trained": found}

    assert trees.failures([row("polar", 0.100), row("polar_64", 0.099)]) == []
    assert len(trees.failures([row("polar", 0.103), row("polar_64", 0.1)])) == 2
    assert trees.failures([row("polar", 0.2, radius=20.0), row("polar_64", 0.1, radius=20.0)]) == []
    assert "not a number" in trees.failures([row("polar", 0.1, lost=0.1), row("polar_64", 0.1)])[0]
