"""The step captured in a CUDA graph trains as the eager one does, and nothing waits for the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import differing, tiny_recipe, weights
from torch import nn

from polarvit.compilation import compiled
from polarvit.geometry import PolarPoint
from polarvit.models import create_model
from polarvit.models.base import call
from polarvit.nn import BoostResidual
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.training import Interrupted, Trainer, train
from polarvit.training.distributed import Place
from polarvit.training.run_folder import RunFolder
from polarvit.training.step import WARM_UP, TrainingStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STEPS = ("train.steps=10", "watch.eval_every=5", "watch.log_every=2")
DEVICE = "cuda:0"


def path_of(folder: Path, *overrides: str, name: str = "polar_vit_tiny") -> tuple[dict[str, torch.Tensor], list[float]]:
    train(tiny_recipe(*STEPS, *overrides, name=name), folder, device=DEVICE, quiet=True)
    return weights(folder), [line["loss"] for line in RunFolder.read_log(folder) if "loss" in line]


@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
@pytest.mark.parametrize(
    "overrides",
    [
        ("model.options.drop_path=0.0",),
        ("model.options.drop_path=0.3",),
        ("optim.clip=0.5", "train.accumulate=2", "train.ema=0.9"),
        ("train.precision=bf16",),
        ("train.precision=fp64",),
    ],
    ids=["plain", "stochastic-depth", "clip-accumulate-ema", "bf16", "fp64"],
)
def test_graph_and_eager_take_the_same_path(tmp_path: Path, name: str, overrides: tuple[str, ...]) -> None:
    eager, eager_losses = path_of(tmp_path / "eager", "train.cuda_graph=false", *overrides, name=name)
    graph, graph_losses = path_of(tmp_path / "graph", "train.cuda_graph=true", *overrides, name=name)
    assert graph_losses == pytest.approx(eager_losses, rel=1e-4)
    for key, tensor in eager.items():
        if key.startswith("model/"):
            torch.testing.assert_close(graph[key], tensor, rtol=1e-3, atol=1e-5, msg=lambda t, key=key: f"{key}: {t}")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("lorentz_vit_tiny", ()),
        ("hexformer_tiny", ("model.options.clamped_keys=true",)),
        ("hexformer_hybrid_tiny", ()),
        ("lvit_tiny", ()),
        ("hvt_tiny", ()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_systems_are_captured_too(tmp_path: Path, name: str, overrides: tuple[str, ...]) -> None:
    same = (*overrides, "model.options.drop_path=0.0", "model.options.dropout=0.0")
    _, eager = path_of(tmp_path / "eager", "train.cuda_graph=false", *same, name=name)
    _, graph = path_of(tmp_path / "graph", "train.cuda_graph=true", *same, name=name)
    assert graph == pytest.approx(eager, rel=1e-3)


class Masks(nn.Module):
    """Which samples the two residuals of a block keep."""

    def __init__(self) -> None:
        super().__init__()
        self.residuals = nn.ModuleList(BoostResidual(drop_path=0.5) for _ in range(2))

    def forward(self, x: PolarPoint) -> torch.Tensor:
        return torch.stack([residual.kept(x).flatten() > 0 for residual in self.residuals])


def test_every_block_of_a_captured_step_draws_masks_of_its_own() -> None:
    blocks, run = [Masks().to(DEVICE) for _ in range(4)], compiled(call)
    x = PolarPoint(torch.ones(256, 4, device=DEVICE), torch.ones(256, 4, 1, device=DEVICE))
    run(blocks[0], x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.cat([run(block, x) for block in blocks])
    kept = []
    for _ in range(3):
        graph.replay()
        kept.append(drawn.float())
    signs = 2 * torch.cat(kept) - 1
    likeness = signs @ signs.mT / 256 - torch.eye(len(signs), device=DEVICE)
    assert signs.shape == (3 * 8, 256)
    assert likeness.abs().max() < 0.35  # by chance 0.06 on average; 1 for masks that are the same
    assert signs.mean().abs() < 0.1


def test_stochastic_depth_of_compiled_blocks_is_drawn_anew_in_every_replay() -> None:
    """One batch, a rate of zero: after the capture only the seed decides what is dropped."""
    torch.manual_seed(0)
    options = {"img_size": 16, "patch_size": 8, "depth": 2, "dim": 16, "mlp_dim": 16, "heads": 2, "drop_path": 0.5}
    model = create_model("polar_vit_tiny", num_classes=5, **options).to(DEVICE)
    model.compile_blocks()
    optimizer = RiemannianAdamW(param_groups(model, 1e-3, 0.0), capturable=True)
    step = TrainingStep(model, optimizer, Place(0, 1, torch.device(DEVICE)), precision="fp32", graph=True)
    images, targets = torch.randn(8, 3, 16, 16, device=DEVICE), torch.full((8, 5), 0.2, device=DEVICE)
    for _ in range(WARM_UP + 2):
        step(images, targets, 0.0)
    losses = []
    for seed in (1, 2, 3, 1):
        torch.manual_seed(seed)
        losses.append(step(images, targets, 0.0).item())
    assert len(set(losses)) == 3
    assert losses[0] == losses[3]


def test_the_learning_rate_reaches_the_graph(tmp_path: Path) -> None:
    """With a rate of zero after the capture the weights stop moving, but for rounding of points to (r, u) and back."""
    here = Place(0, 1, torch.device(DEVICE))
    trainer = Trainer(tiny_recipe("train.cuda_graph=true"), RunFolder(tmp_path, here, resume=False), here, quiet=True)
    for step in range(6):
        trainer._one(step)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer._lr = lambda step: 0.0  # type: ignore[method-assign]
    trainer._one(6)
    for p, old in zip(trainer.model.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old, rtol=2e-6, atol=1e-9)
    trainer._lr = lambda step: 1e-2  # type: ignore[method-assign]
    trainer._one(7)
    assert any(not torch.equal(p, old) for p, old in zip(trainer.model.parameters(), before, strict=True))


def test_a_captured_run_resumes(tmp_path: Path) -> None:
    options = (*STEPS, "train.cuda_graph=true", "model.options.drop_path=0.3")
    train(tiny_recipe(*options), tmp_path / "whole", device=DEVICE, quiet=True)
    with pytest.raises(Interrupted):
        train(tiny_recipe(*options), tmp_path / "parts", device=DEVICE, quiet=True, stop_after=6)
    train(tiny_recipe(*options), tmp_path / "parts", device=DEVICE, quiet=True, resume=True)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for key in differing(whole, parts):
        torch.testing.assert_close(parts[key], whole[key], rtol=1e-3, atol=1e-5, msg=lambda t, key=key: f"{key}: {t}")


@pytest.mark.parametrize("graph", ["false", "true"], ids=["eager", "graph"])
def test_no_step_waits_for_the_device(tmp_path: Path, graph: str) -> None:
    here = Place(0, 1, torch.device(DEVICE))
    recipe = tiny_recipe(f"train.cuda_graph={graph}", "train.ema=0.9", "optim.clip=1.0")
    trainer = Trainer(recipe, RunFolder(tmp_path, here, resume=False), here, quiet=True)
    for step in range(20):  # past the capture and the first batches that are made ahead
        trainer.losses.add(trainer._one(step))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(20, 40):
            trainer.losses.add(trainer._one(step))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer.losses.steps == 40


def test_a_graph_and_recomputed_blocks_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot both be on"):
        train(tiny_recipe("train.cuda_graph=true", "train.grad_checkpointing=true"), tmp_path, device=DEVICE)
