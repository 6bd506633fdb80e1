"""The models that run against each other: the same depth, width, heads, patches and classes in each of them.

Ratios are taken against `euclidean`, the twin that reads the mean of as many tokens as Polar-ViT has. The twin as it is
usually trained has a class token besides, so one token more, which scaled dot product attention likes less: both run.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from polarvit.compilation import SMALLER_KERNELS
from polarvit.kernels.pick import kernels
from polarvit.models import AmbientTwin, PolarViT, VisionModel, ViTConfig, calibrate, create_model, list_models
from polarvit.models.base import call
from polarvit.training.ahead import compile_kernels_ahead
from polarvit.training.recipe import Precision
from polarvit.training.settings import SettingsError

BASE = "euclidean"
NARROW: dict[str, Any] = {"depth": 2, "dim": 24, "mlp_dim": 48, "heads": 2}
"""Sizes where there is no GPU."""


@dataclass(frozen=True)
class Setting:
    """The sizes all contestants share."""

    size: str = "tiny"
    image: int = 32
    patch: int = 4
    classes: int = 100
    narrow: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Fields of our configs."""
        sizes = {"img_size": self.image, "patch_size": self.patch, "num_classes": self.classes}
        return {**sizes, **(NARROW if self.narrow else {})}

    @property
    def short(self) -> str:
        return f"{'Narrow ' if self.narrow else ''}ViT-{self.size.title()}, {self.image} px, patch {self.patch}"

    def __str__(self) -> str:
        return self.short + (" (two blocks of width 24: says nothing about speed)" if self.narrow else "")


@dataclass(frozen=True)
class Case:
    """What all contestants of one comparison are timed under."""

    setting: Setting
    device: torch.device
    batch: int
    precision: Precision
    compiled: bool

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def __str__(self) -> str:
        return f"{self.setting}, batch {self.batch}, {self.precision}"


@dataclass(frozen=True)
class Contestant:
    """One of them: the word to ask for it, its name in tables, and whether it may use the fused kernels.

    `model` is a registered name, for those that are nothing but one; `largest` is how many loops a compiled kernel may
    take in, and what to try next where a compiler fails on them.
    """

    key: str
    label: str
    fused: bool = False
    model: str = ""
    largest: tuple[int | None, ...] = (None,)

    def kernels(self) -> AbstractContextManager[None]:
        """The kernels it runs with, to be entered around everything that compiles or runs it."""
        return kernels("auto" if self.fused else "plain")


CONTESTANTS = (
    Contestant(BASE, "Euclidean ViT, mean readout"),
    Contestant("class-token", "Euclidean ViT, class token"),
    Contestant("timm", "timm ViT, mean readout"),
    Contestant("polar", "Polar-ViT", fused=True),
    Contestant("joint", "Polar-ViT, joint shift", fused=True),
    Contestant("plain", "Polar-ViT, plain code", largest=SMALLER_KERNELS),
    Contestant("lorentz", "Lorentz ViT, ambient"),
)
DEFAULT = tuple(one.key for one in CONTESTANTS if one.key != "joint")


def chosen(keys: Iterable[str] | None) -> list[Contestant]:
    """The contestants asked for, and the base of the ratios, in the order of the table; timm's only if installed."""
    wanted = list(keys or DEFAULT)
    known = [one.key for one in CONTESTANTS]
    for key in wanted:
        if key not in known:
            raise SettingsError(f"unknown contestant '{key}'; there are {', '.join(known)}")
    if "timm" in wanted and not timm_installed():
        if keys:
            raise ImportError("the contestant 'timm' needs timm: pip install polarvit[timm]")
        wanted.remove("timm")
    return [one for one in CONTESTANTS if one.key in wanted or one.key == BASE]


def timm_installed() -> bool:
    return find_spec("timm") is not None


def build(
    one: Contestant,
    setting: Setting,
    images: Tensor,
    *,
    compiled: bool,
    precision: Precision = "tf32",
    largest: int | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """The model in training mode on the device of `images`, calibrated on them, and what to record about it.

    `largest` is one of the contestant's.

    Where the registry has no `lorentz_vit_*` of this size, the ambient twin of Polar-ViT stands in; it runs eagerly.
    """
    torch.manual_seed(0)
    size, options = setting.size, setting.options
    if one.key == "timm":
        return _timm(setting, compiled).to(images.device), {"name": "timm VisionTransformer", "compiled": compiled}
    if one.model:
        return _registered(one.model, setting, images, compiled, precision)
    lorentz = f"lorentz_vit_{size}"
    extra: dict[str, Any] = {}
    twin = one.key == "lorentz" and lorentz not in list_models()
    if one.key == BASE:
        name, extra = f"vit_{size}", {"readout": "mean"}
    elif one.key == "class-token":
        name, extra = f"vit_{size}", {"readout": "class_token"}
    elif one.key == "lorentz" and not twin:
        name = lorentz
    else:
        name, extra = f"polar_vit_{size}", {"implementation": "auto" if one.fused else "reference"}
        if one.key == "joint":
            extra["position"] = "joint"
    model: VisionModel = create_model(name, **options, **extra).to(images.device)
    if compiled:
        compile_kernels_ahead(model, images, precision)
    if isinstance(model, PolarViT):
        calibrate(model, images[:128])
    if twin:
        assert isinstance(model, PolarViT)
        return AmbientTwin(model), {"name": f"AmbientTwin({name})", "compiled": False}
    if compiled:
        model.compile_blocks(largest_kernel=largest)
    return model, {
        "name": name,
        "options": extra,
        "compiled": compiled,
        "largest_kernel": largest if compiled else None,
    }


def _registered(
    name: str, setting: Setting, images: Tensor, compiled: bool, precision: Precision
) -> tuple[nn.Module, dict[str, Any]]:
    """A registered model as training starts it."""
    model = create_model(name, **setting.options).to(images.device)
    if compiled:
        compile_kernels_ahead(model, images, precision)
    if model.calibrated:
        calibrate(model, images[:128])
    if compiled:
        model.compile_blocks()
    return model, {"name": name, "compiled": compiled}


class Compiled(nn.Module):
    """A block of a foreign model, called through one compiled function that serves all of its blocks."""

    def __init__(self, block: nn.Module, function: Any) -> None:
        super().__init__()
        self.block, self.function = block, function

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.function(self.block, *inputs, **options)


def _timm(setting: Setting, compiled: bool) -> nn.Module:
    """timm's ViT in the sizes of `vit_*`, with the mean as its readout and no class token.

    Without stochastic depth: timm's rates differ from block to block, and each would be a compilation of its own.
    """
    from timm.models.vision_transformer import VisionTransformer

    with torch.device("meta"):
        twin = create_model(f"vit_{setting.size}", **setting.options).config
    assert isinstance(twin, ViTConfig)
    model = VisionTransformer(
        img_size=twin.img_size,
        patch_size=twin.patch_size,
        num_classes=twin.num_classes,
        embed_dim=twin.dim,
        depth=twin.depth,
        num_heads=twin.heads,
        mlp_ratio=twin.mlp_dim / twin.dim,
        class_token=False,
        global_pool="avg",
    )
    if compiled:
        function = torch.compile(call, dynamic=False)
        model.blocks = nn.Sequential(*(Compiled(block, function) for block in model.blocks))
    return model.train()
