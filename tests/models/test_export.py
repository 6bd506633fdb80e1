"""Compiled, exported and in ONNX: the same logits."""

from __future__ import annotations

import shutil

import pytest
import torch
from models.compiled import check_compiled_gradients
from models.exported import ONNX, check_program, check_tidy, needs_onnx, run_onnx
from models.narrow import DISTINCT, MODELS
from torch._dynamo.backends.registry import lookup_backend

from polarvit.models import export_onnx, export_program


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
def test_every_model_exports_with_its_logits(narrow, images, tmp_path, name) -> None:
    model = narrow(name).train()
    program = export_program(model, batch=3)
    assert model.training
    # Ambient coordinates cancel: rounding in another order moves single logits of that net by 4e-6.
    check_program(program, model, images, atol=1e-5 if name == "unet_lorentz" else 1e-6)
    if ONNX:
        path = export_onnx(program, tmp_path / "model.onnx")
        run_onnx(model, path, (3,))
        check_tidy(path)


@needs_onnx
def test_a_dynamic_program_takes_any_batch(narrow, images, tmp_path) -> None:
    model = narrow("vit_small")
    torch.testing.assert_close(export_program(model).module()(images), model.eval()(images))
    run_onnx(model, export_onnx(model, tmp_path / "model.onnx"), (2, 5))


@pytest.mark.slow
def test_a_dynamic_program_of_a_polar_model_takes_any_batch(narrow) -> None:
    """Of one block, since it takes three times as long to export as with a fixed batch."""
    model = narrow("polar_vit_tiny", depth=1, dim=8, mlp_dim=8, heads=1).eval()
    program = export_program(model).module()
    for count in (2, 5):
        images = torch.randn(count, 3, 8, 8)
        torch.testing.assert_close(program(images), model(images))


def test_a_bad_batch_is_named(narrow) -> None:
    with pytest.raises(ValueError, match="'dynamic' or a positive number of images, got 0"):
        export_program(narrow("vit_tiny"), batch=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DISTINCT if name in MODELS])
def test_blocks_compile_whole_and_once(narrow, images, name) -> None:
    """aot_eager with fullgraph: no graph break in a part, forward and backward; two blocks share one compilation."""
    model, parts = narrow(name), set()
    note = lambda module, *inputs, **options: parts.add(type(module)) or module(*inputs, **options)  # noqa: E731
    model.run = model.run_end = note
    logits = model(images)
    logits.sum().backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.requires_grad}
    del model.run, model.run_end
    model.zero_grad()
    torch._dynamo.reset()
    graphs = []

    def count_and_compile(graph, example):
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, example)

    model.compile_blocks(backend=count_and_compile)
    compiled = model(images)
    torch.testing.assert_close(compiled, logits, rtol=1e-4, atol=1e-5)
    compiled.sum().backward()
    for key, gradient in gradients.items():
        torch.testing.assert_close(model.get_parameter(key).grad, gradient, rtol=1e-3, atol=1e-5)
    assert len(graphs) == len(parts)  # polar: embedding, block, pool and head


@pytest.mark.parametrize("name", ["lvit_tiny", "vit_tiny"])
def test_compiled_gradients_are_as_near_to_float64_as_plain_ones(narrow, images, name) -> None:
    """The comparison that full sizes get on a GPU. Blocks wrong by a thousandth do not pass, nor does dropout."""

    def wrong(graph, example):
        return lambda *inputs: [1.001 * x for x in graph(*inputs)]

    torch._dynamo.reset()
    check_compiled_gradients(narrow(name), images, backend="aot_eager")
    with pytest.raises(AssertionError, match="compiled gradients are off"):
        check_compiled_gradients(
            narrow(name), images, backend=lambda graph, _: lambda *x: [1.001 * y for y in graph(*x)]
        )
    with pytest.raises(AssertionError, match="float32 itself is off"):
        check_compiled_gradients(narrow(name, dropout=0.1), images, backend="eager")


@pytest.mark.parametrize("name", ["lorentz_vit_tiny", "lvit_tiny", "vit_tiny"])
def test_whole_models_compile_without_a_break(narrow, images, name) -> None:
    """Those that do so in seconds; Polar-ViT by inductor below, every model part by part above."""
    model = narrow(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(images), model(images), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
def test_inductor_compiles_whole_models(narrow, name) -> None:
    """One polar and one Euclidean model of one block: generated C++ gives the logits of the plain code."""
    model = narrow(name, depth=1, dim=8, mlp_dim=8, heads=1).eval()
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(images), model(images), rtol=1e-4, atol=1e-5)
