"""Compiled, exported and in ONNX: the same logits."""

from __future__ import annotations

import importlib.util

import numpy
import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend

from polarvit.models import VisionModel, export_onnx, export_program

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not ONNX, reason="onnx, onnxscript and onnxruntime are not installed")


def run_onnx(model: VisionModel, path, batches: tuple[int, ...]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [x.name for x in session.get_inputs()] == ["images"]
    for count in batches:
        images = torch.randn(count, model.config.in_chans, *model.config.image)
        with torch.no_grad():
            expected = model.eval()(images).numpy()
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        numpy.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


@needs_onnx
@pytest.mark.parametrize("name", ["vit_base", "vit_small", "vit_tiny"])
def test_euclidean_models_export_with_any_batch(narrow, images, tmp_path, name) -> None:
    model = narrow(name).train()
    program = export_program(model)
    assert model.training
    torch.testing.assert_close(program.module()(images), model.eval()(images))
    run_onnx(model, export_onnx(model, tmp_path / "model.onnx"), (2, 5))


@needs_onnx
@pytest.mark.slow
def test_polar_models_export(narrow, images, tmp_path) -> None:
    model = narrow("polar_vit_tiny", depth=1).eval()
    program = export_program(model, batch=3)
    torch.testing.assert_close(program.module()(images), model(images), rtol=1e-5, atol=1e-6)
    run_onnx(model, export_onnx(program, tmp_path / "model.onnx"), (3,))


def test_a_bad_batch_is_named(narrow) -> None:
    with pytest.raises(ValueError, match="'dynamic' or a positive number of images, got 0"):
        export_program(narrow("vit_tiny"), batch=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
def test_blocks_compile_whole_and_once(narrow, images, name) -> None:
    """aot_eager with fullgraph: no graph break in a block, forward and backward; two blocks share one compilation."""
    model = narrow(name)
    model(images).sum().backward()
    logits, gradients = model(images), [p.grad for p in model.parameters()]
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
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)
    assert len(graphs) == (4 if name.startswith("polar") else 1)  # a block; and embedding, pool, head


@pytest.mark.parametrize("name", ["vit_base", "vit_small", "vit_tiny"])
def test_whole_euclidean_models_compile_without_a_break(narrow, images, name) -> None:
    model = narrow(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), model(images), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_euclidean_block_compiles_with_inductor(narrow, images) -> None:
    """The polar block takes inductor minutes on a CPU; there `aot_eager` stands for it above."""
    model = narrow("vit_tiny")
    logits = model(images)
    torch._dynamo.reset()
    model.compile_blocks()
    torch.testing.assert_close(model(images), logits, rtol=1e-4, atol=1e-5)
