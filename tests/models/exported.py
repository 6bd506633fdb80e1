"""Exported programs and ONNX files beside the models they were made from."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

from polarvit.models import VisionModel

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not ONNX, reason="onnx, onnxscript and onnxruntime are not installed")


def check_program(program: torch.export.ExportedProgram, model: VisionModel, images: Tensor, atol: float) -> None:
    """The program gives the model's logits and does not say where it was traced."""
    with torch.no_grad():
        torch.testing.assert_close(program.module()(images), model.eval()(images), rtol=1e-5, atol=atol)
    assert not [node for node in program.graph.nodes if "stack_trace" in node.meta]


def run_onnx(model: VisionModel, path: Path, batches: tuple[int, ...]) -> None:
    """The file gives the model's logits in onnxruntime, for each of these numbers of images."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [x.name for x in session.get_inputs()] == ["images"]
    for count in batches:
        images = torch.randn(count, model.config.in_chans, *model.config.image)
        with torch.no_grad():
            expected = model.eval()(images).numpy()
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        numpy.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


def check_tidy(path: Path) -> None:
    """The file passes ONNX's strict checker and holds neither paths of this machine nor the same constant twice."""
    import onnx

    onnx.checker.check_model(path, full_check=True)
    assert str(Path(__file__).parents[2]).encode() not in path.read_bytes()
    graph = onnx.load(path).graph
    constants = [node.attribute[0].SerializeToString() for node in graph.node if node.op_type == "Constant"]
    assert len(set(constants)) == len(constants)
