"""The public surface: its names, its keyword `k`, and the examples in its docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest
import torch

import polarvit.geometry as geometry

PROMISED = {
    "PolarPoint", "PolarTangent", "from_ambient", "to_ambient", "from_space", "to_space", "from_tangent0",
    "to_tangent0", "from_ball", "to_ball", "to_klein", "distance", "pairwise_distance", "centroid", "tangent_inner",
    "riemannian_gradient", "exp_map", "log_map", "transport", "gyroadd", "gyroneg", "gyroscale", "horoshift", "boost",
    "rotate", "busemann", "concat", "split", "validate", "ambient",
}  # fmt: skip
BESIDES = {"from_klein", "squared_distance", "split_heads"}
FUNCTIONS = sorted((PROMISED | BESIDES) - {"PolarPoint", "PolarTangent", "ambient"})
POLAR_ONLY = {"validate", "from_klein", "split_heads", "from_ambient", "to_ambient"}
MODULES = sorted(module.name for module in pkgutil.iter_modules(geometry.__path__))


def test_public_names_are_the_promised_ones_and_few_besides() -> None:
    assert set(geometry.__all__) == PROMISED | BESIDES
    assert list(geometry.__all__) == sorted(geometry.__all__)
    assert all(hasattr(geometry, name) for name in geometry.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_takes_k_as_a_keyword_and_has_a_docstring(name: str) -> None:
    function = getattr(geometry, name)
    k = inspect.signature(function).parameters["k"]
    assert k.kind is inspect.Parameter.KEYWORD_ONLY
    assert k.default == 1.0
    assert function.__doc__
    assert all(p.annotation is not inspect.Parameter.empty for p in inspect.signature(function).parameters.values())


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - POLAR_ONLY))
def test_the_ambient_baseline_has_the_same_names(name: str) -> None:
    assert "k" in inspect.signature(getattr(geometry.ambient, name)).parameters


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    loaded = importlib.import_module(f"polarvit.geometry.{module}")
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    own = [x for x in vars(loaded).values() if getattr(x, "__module__", None) == loaded.__name__]
    for value in own:
        for example in finder.find(value, value.__name__, globs={**vars(geometry), "torch": torch}):
            runner.run(example)
    assert runner.failures == 0


def test_points_are_pytrees_with_a_few_conveniences() -> None:
    p = geometry.PolarPoint(torch.zeros(2, 3), torch.ones(2, 3, 4))
    assert p.shape == (2, 3)
    assert p.dim == 4
    assert p.reshape(6).direction.shape == (6, 4)
    assert p.map(torch.Tensor.double).radius.dtype == torch.float64
    leaves, shape = torch.utils._pytree.tree_flatten(p)
    assert isinstance(torch.utils._pytree.tree_unflatten(leaves, shape), geometry.PolarPoint)
    xi = geometry.PolarTangent(torch.zeros(2), torch.ones(2, 4))
    assert xi.shape == (2,)
    assert xi.map(torch.Tensor.double).perpendicular.dtype == torch.float64
