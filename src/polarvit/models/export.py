"""Models for other runtimes: an exported program, and ONNX."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from polarvit.models.base import VisionModel

if TYPE_CHECKING:
    import onnx_ir

Batch = Literal["dynamic"] | int
_CHATTY = "torch.onnx._internal.exporter._registration"
"""Logs a warning for each operator of torchvision that it cannot register, which no model here uses."""


def export_program(model: VisionModel, batch: Batch = "dynamic") -> torch.export.ExportedProgram:
    """The model in evaluation mode as one graph (`torch.export`), for images [B, C, H, W] of its config.

    `batch` is a fixed number of images, or "dynamic" for any number of two or more. The program does not say from
    which lines of which files it was traced: that would be most of a small file, and paths of this machine.
    """
    images, shapes = _example(model, batch)
    was_training = model.training
    try:
        with torch.no_grad(), _Exportable():
            program = torch.export.export(model.eval(), (images,), dynamic_shapes=shapes)
    finally:
        model.train(was_training)
    for node in program.graph.nodes:
        for key in ("stack_trace", "from_node"):
            node.meta.pop(key, None)
    return program


def export_onnx(model: VisionModel | torch.export.ExportedProgram, path: str | Path, batch: Batch = "dynamic") -> Path:
    """Write a model in evaluation mode as an ONNX file: `images` [B, C, H, W] to `logits` [B, classes].

    A program that `export_program` made is taken as it is, with its own batch. Needs the extra `export` (onnx,
    onnxscript). Weights are inside the file.
    """
    for module in ("onnx", "onnxscript"):
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"export_onnx needs {module}: pip install polarvit[export]")
    path = Path(path)
    program = export_program(model, batch) if isinstance(model, VisionModel) else model
    logging.getLogger(_CHATTY).setLevel(logging.ERROR)
    onnx = torch.onnx.export(
        program,
        input_names=["images"],
        output_names=["logits"],
        dynamo=True,
        optimize=False,  # runtimes do it themselves; here its time grows with the square of the graph
        verbose=False,
    )
    if onnx is None:
        raise RuntimeError("export_onnx: torch.onnx.export returned no program")
    _tidy(onnx.model)
    onnx.save(path, external_data=False)
    return path


def _tidy(model: onnx_ir.Model) -> None:
    """Leave in an ONNX model what computes, in place.

    torch.onnx writes for every node where in the source it came from, nine tenths of a small file, and for every value
    a shape, on which ONNX's own strict checker can stumble; both go, and repeated constants and conversions are
    merged. A conversion to the type of another value names that type instead, so that runtimes fold it.
    """
    import onnx_ir
    from onnx_ir.passes import common

    inner = [value for node in model.graph for value in node.outputs if not value.is_graph_output()]
    for value in inner:
        value.shape = None
    common.ShapeInferencePass()(model)  # finds the types that are still missing
    for node in model.graph:
        like = node.inputs[1] if node.op_type == "CastLike" else None
        if like is not None and like.dtype is not None:
            node.op_type = "Cast"
            node.resize_inputs(1)
            node.attributes["to"] = onnx_ir.AttrInt64("to", int(like.dtype))
    for tidy in (
        common.ClearMetadataAndDocStringPass(),
        common.CommonSubexpressionEliminationPass(),
        common.IdentityEliminationPass(),
        common.RemoveUnusedNodesPass(),
    ):
        tidy(model)
    for value in inner:
        value.shape = value.type = None


def _example(model: VisionModel, batch: Batch) -> tuple[Tensor, dict[str, Any] | None]:
    if batch != "dynamic" and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ValueError(f"export: batch must be 'dynamic' or a positive number of images, got {batch!r}")
    reference = next(model.parameters())
    count = 2 if batch == "dynamic" else batch
    images = reference.new_zeros(count, model.config.in_chans, *model.config.image)
    shapes = {"images": {0: torch.export.Dim("batch", min=2)}} if batch == "dynamic" else None
    return images, shapes


class _Exportable(TorchFunctionMode):
    """While exporting, say in basic operators what ONNX has no operator for or what fixes the batch size."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _BASIC.get(func, func)(*args, **(kwargs or {}))


def _differences(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: str = "") -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1).sqrt()


def _take(x: Tensor, index: Tensor, dim: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = index.shape[dim]
    return x.gather(dim, index.expand(shape))


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    return torch.sqrt(x.square() + y.square())


_BASIC: dict[Any, Callable[..., Tensor]] = {
    torch.cdist: _differences,
    torch.take_along_dim: _take,
    torch.hypot: _hypot,
}
