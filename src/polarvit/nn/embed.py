"""From images to points: patches, the class token, the position table."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_space, from_tangent0, to_space
from polarvit.nn.linear import PolarLinear
from polarvit.nn.position import sincos_table
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import MANIFOLD, TABLE, Role


def check_images(owner: str, images: Tensor, channels: int, size: tuple[int, int]) -> None:
    """Raise unless `images` is a floating tensor [B, channels, *size]; `owner` is who says so."""
    if images.ndim != 4 or tuple(images.shape[1:]) != (channels, *size):
        raise ValueError(f"{owner}: expected images [B, {channels}, {size[0]}, {size[1]}], got {list(images.shape)}")
    if not images.is_floating_point():
        raise ValueError(f"{owner}: expected floating images, scaled and normalised, got {images.dtype}")


def check_dtype(model: nn.Module, images: Tensor) -> None:
    """Raise if images are float64 and the model is not: its first product would, without saying what to do."""
    if images.dtype == torch.float64 and (kept := next(model.parameters()).dtype) != torch.float64:
        name = type(model).__name__
        raise ValueError(f"{name}: images are float64, the model is {kept}: images.float(), or model.double()")


def patchify(images: Tensor, patch: int) -> Tensor:
    """Images [B, C, H, W] to flattened patches [B, N, p p C], row-major, each in (row, column, channel) order."""
    b, c, h, w = images.shape
    x = images.reshape(b, c, h // patch, patch, w // patch, patch)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // patch) * (w // patch), patch * patch * c)


class PolarPatchEmbed(nn.Module):
    """Patches are read as space coordinates, put on the manifold and mapped by a polar layer; the position table is
    added to the space coordinates (paper, "Methodology"; after HexFormer).

    `positions`: a `learned` table (standard deviation `std`), a fixed `sincos` one, or `none`. `class_token` puts a
    learned point first, without position.
    """

    roles: ClassVar[dict[str, Role]] = {"table": TABLE, "token": MANIFOLD}

    def __init__(
        self,
        img_size: tuple[int, int],
        patch_size: int,
        in_chans: int,
        dim: int,
        positions: Literal["learned", "sincos", "none"] = "learned",
        std: float = 0.02,
        class_token: bool = False,
        rule: str = "anchored",
        time_init: Literal["zero", "full"] = "full",
    ) -> None:
        super().__init__()
        if img_size[0] % patch_size or img_size[1] % patch_size:
            raise ValueError(f"PolarPatchEmbed: image size {img_size} is not divisible by patch size {patch_size}")
        if positions not in ("learned", "sincos", "none"):
            raise ValueError(f"PolarPatchEmbed: positions must be 'learned', 'sincos' or 'none', got {positions!r}")
        self.img_size, self.patch_size, self.in_chans = img_size, patch_size, in_chans
        self.grid = (img_size[0] // patch_size, img_size[1] // patch_size)
        self.proj = PolarLinear(patch_size * patch_size * in_chans, dim, rule=rule, time_init=time_init)
        self.table: Tensor | None
        if positions == "learned":
            self.table = nn.Parameter(std * torch.randn(self.grid[0] * self.grid[1], dim))
        elif positions == "sincos":
            self.register_buffer("table", sincos_table(self.grid, dim), persistent=False)
        else:
            self.table = None
        self.token = nn.Parameter(torch.zeros(dim)) if class_token else None

    def forward(self, images: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        check_images("PolarPatchEmbed", images, self.in_chans, self.img_size)
        patches = from_space(full(patchify(images, self.patch_size)), k=k)
        return self.place(self.proj(patches, k=k), k=k)

    @in_full_precision
    def place(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        """Add the position table to the space coordinates and put the class token first."""
        if self.table is not None:
            x = from_space(to_space(x, k=k) + full(self.table), k=k)
        if self.token is not None:
            token = from_tangent0(full(self.token)).map(lambda y: y.expand(x.shape[0], 1, *y.shape))
            x = PolarPoint(torch.cat([token.radius, x.radius], 1), torch.cat([token.direction, x.direction], 1))
        return x


def resize_table(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Bicubic resize of a position table [N, dim] from one patch grid to another."""
    if table.shape[0] != old[0] * old[1]:
        raise ValueError(f"resize_table: table of {table.shape[0]} rows does not fit grid {old}")
    if old == new:
        return table
    image = table.float().reshape(1, *old, -1).permute(0, 3, 1, 2)
    image = F.interpolate(image, size=new, mode="bicubic", antialias=True, align_corners=False)
    return image.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1).to(table.dtype)
