"""DeiT (Touvron et al., 2021), a plain Euclidean ViT with public weights, from which the paper's Flat-ViT starts.

    state = read_public("deit_small_patch16_224-cd65a155.pth")
    model = from_public(state)                                   # a DeiT of the size that the weights have

The file is timm's way to name such a network, so plain ViTs of timm with a class token are read too.
"""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polarvit.models.config import ViTConfig
from polarvit.models.entry import Entry
from polarvit.models.vit import ViT
from polarvit.models.weights import WeightsError, check_fit, fill

HEADS = {192: 3, 384: 6, 768: 12, 1024: 16}
"""Heads of the published networks, by width."""
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 192, "mlp_dim": 768, "heads": 3},
    "small": {"dim": 384, "mlp_dim": 1536, "heads": 6},
    "base": {"dim": 768, "mlp_dim": 3072, "heads": 12},
}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
"""What DeiT's images are normalised by."""
OURS = {
    "cls_token": "token",
    "pos_embed": "table",
    "patch_embed.proj": "embed",
    "attn.qkv": "attention.qkv",
    "attn.proj": "attention.out",
    "mlp.fc1": "mlp.0",
    "mlp.fc2": "mlp.2",
}
"""timm's names of what is called otherwise here."""
_BLOCK = re.compile(r"blocks\.(\d{1,4})\.norm1\.weight$")


class DeiT(ViT):
    """DeiT without distillation (`ViTConfig`); fresh layers are drawn from a truncated normal of 0.02, as by its
    authors, who draw the patch embedding otherwise.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)


ENTRIES = tuple(
    Entry(
        f"deit_{size}",
        DeiT,
        ViTConfig(
            **fields,
            img_size=224,
            patch_size=16,
            depth=12,
            drop_path_schedule="linear",
            norm_eps=1e-6,
            plain_attention=True,
        ),
        "Touvron et al., 2021, DeiT",
        "the Flat-ViT of Park et al., 2025, H-CAST; takes the public weights",
    )
    for size, fields in SIZES.items()
)


def read_public(file: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.pth` checkpoint (nothing in it is executed) or of a `.safetensors` file."""
    path = Path(file)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            _check_stored(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path}: not a checkpoint of tensors alone, and nothing else is read") from error
    except (OSError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile, SafetensorError) as error:
        why = str(error).partition("\n")[0] or "it ends early"
        raise WeightsError(f"{path}: not readable as weights ({why})") from error
    for key in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise WeightsError(f"{path}: expected tensors by name, or such under 'model' or 'state_dict'")
    for key, tensor in state.items():
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise WeightsError(f"{path}: {key} claims more numbers than the file has")
    return state


def _check_stored(path: Path) -> None:
    """Raise unless a zip holds its parts as they are, as torch writes them: nothing unpacks to more than the file."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or (
        sum(part.file_size for part in parts) > path.stat().st_size
    ):
        raise WeightsError(f"{path}: is packed, as torch packs no checkpoint; not read")


def from_public(state: dict[str, Tensor], source: str = "public weights", heads: int | None = None) -> DeiT:
    """The model whose weights `state` holds in timm's names; size, patch, image and classes are read off the shapes.

    A patch is (row, column, channel) here and (channel, row, column) there. How many heads there are is not in the
    weights: known for the usual widths (`HEADS`), it must be said for others.
    """
    ours = {_named(key): tensor for key, tensor in state.items()}
    ranks = {"token": 3, "table": 3, "embed.weight": 4, "embed.bias": 1, "blocks.0.mlp.0.weight": 2}
    for key, rank in ranks.items():
        if key not in ours:
            raise WeightsError(f"{source}: no {_named(key, back=True)}: not a plain ViT with a class token")
        if ours[key].ndim != rank:
            raise WeightsError(
                f"{source}: {_named(key, back=True)} has shape {list(ours[key].shape)}, expected {rank} axes"
            )
    if "dist_token" in ours:
        raise WeightsError(f"{source}: has a dist_token; distilled models have two heads and are not read")
    patches, blocks = ours["embed.weight"], {int(found[1]) for key in ours if (found := _BLOCK.match(key))}
    dim, channels, patch = patches.shape[:3]
    rows = ours["table"].shape[1] - 1
    side = math.isqrt(max(rows, 0))
    if patches.shape[2] != patches.shape[3] or rows < 1 or side**2 != rows:
        shapes = f"patches {list(patches.shape)} and {rows} positions"
        raise WeightsError(f"{source}: expected square patches and a square grid, got {shapes}")
    if not blocks or blocks != set(range(len(blocks))):
        raise WeightsError(f"{source}: expected blocks from 0 on, each with a norm1.weight; found {sorted(blocks)}")
    heads = heads or HEADS.get(dim)
    if heads is None or dim % heads:
        known = ", ".join(f"{width} ({count})" for width, count in HEADS.items())
        got = "it must be said" if heads is None else f"{heads} do not divide it"
        raise WeightsError(
            f"{source}: the number of heads is not in the weights; of width {dim} {got}; known are {known}"
        )
    ours["embed.weight"] = patches.permute(0, 2, 3, 1).flatten(1)
    ours["token"], ours["table"] = ours["token"].flatten(), ours["table"].flatten(0, 1)
    head = ours.get("head.bias")
    config = ViTConfig(
        img_size=side * patch,
        in_chans=channels,
        num_classes=0 if head is None or head.ndim != 1 else len(head),
        patch_size=patch,
        depth=len(blocks),
        dim=dim,
        mlp_dim=len(ours["blocks.0.mlp.0.weight"]),
        heads=heads,
        drop_path_schedule="linear",
        norm_eps=1e-6,
        plain_attention=True,
    )
    check_fit(ours, lambda: DeiT(config), source)
    model = DeiT(config)
    fill(model, ours, set(), source)
    size = next((size for size, fields in SIZES.items() if fields["dim"] == dim), None)
    model.default_cfg["architecture"] = f"deit_{size}" if size else DeiT.__name__
    if channels == len(IMAGENET["mean"]):
        model.default_cfg.update(IMAGENET)
    return model.eval()


def _named(key: str, back: bool = False) -> str:
    for theirs, ours in OURS.items():
        old, new = (ours, theirs) if back else (theirs, ours)
        key = re.sub(rf"(^|\.){re.escape(old)}(?=\.|$)", rf"\1{new}", key)
    return key
