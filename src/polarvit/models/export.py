"""Models for other runtimes: an exported program, and ONNX."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from polarvit.models.base import VisionModel

Batch = Literal["dynamic"] | int


def export_program(model: VisionModel, batch: Batch = "dynamic") -> torch.export.ExportedProgram:
    """The model in evaluation mode as one graph (`torch.export`), for images [B, C, H, W] of its config.

    `batch` is a fixed number of images, or "dynamic" for any number of two or more.
    """
    images, shapes = _example(model, batch)
    was_training = model.training
    try:
        with torch.no_grad(), _Exportable():
            return torch.export.export(model.eval(), (images,), dynamic_shapes=shapes)
    finally:
        model.train(was_training)


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
    onnx.save(path, external_data=False)
    return path


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
