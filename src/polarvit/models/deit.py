"""DeiT (Touvron et al., 2021), a plain Euclidean ViT with public weights, from which the paper's Flat-ViT starts.

    state = read_public("deit_small_patch16_224-cd65a155.pth")
    model = from_public(state)                                   # a DeiT of the size that the weights have

The file is timm's way to name such a network, so every plain ViT of timm with a class token is read.
"""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polarvit.models.config import ViTConfig
from polarvit.models.entry import Entry
from polarvit.models.vit import ViT
from polarvit.models.weights import WeightsError, fill

HEAD_WIDTH = 64
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


class DeiT(ViT):
    """DeiT without distillation (`ViTConfig`); a fresh one is drawn as its authors draw it."""

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
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path}: not a checkpoint of tensors alone, and nothing else is read") from error
    except (OSError, RuntimeError, EOFError, SafetensorError) as error:
        why = str(error).partition("\n")[0] or "it ends early"
        raise WeightsError(f"{path}: not readable as weights ({why})") from error
    for key in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise WeightsError(f"{path}: expected tensors by name, or such under 'model' or 'state_dict'")
    return state


def from_public(state: dict[str, Tensor], source: str = "public weights") -> DeiT:
    """The model whose weights `state` holds in timm's names; size, patch, image and classes are read off the shapes.

    A patch is (row, column, channel) here and (channel, row, column) there. The number of heads is not in the weights:
    they are taken to be 64 wide, as in every published size.
    """
    ours = {_named(key): tensor for key, tensor in state.items()}
    needed = {"token", "table", "embed.weight", "blocks.0.mlp.0.weight"}
    if missing := sorted(needed - set(ours)):
        raise WeightsError(f"{source}: no {_named(missing[0], back=True)}: not a plain ViT with a class token")
    if "dist_token" in ours:
        raise WeightsError(f"{source}: has a dist_token; distilled models have two heads and are not read")
    patches = ours["embed.weight"]
    dim, channels, patch = patches.shape[0], *patches.shape[1:3]
    rows = ours["table"].shape[1] - 1
    side = math.isqrt(rows)
    if patches.ndim != 4 or patches.shape[2] != patches.shape[3] or side**2 != rows or dim % HEAD_WIDTH:
        raise WeightsError(
            f"{source}: expected square patches, a square grid and a width in multiples of {HEAD_WIDTH}, got patches "
            f"{list(patches.shape)} and {rows} positions"
        )
    ours["embed.weight"] = patches.permute(0, 2, 3, 1).flatten(1)
    ours["token"], ours["table"] = ours["token"].reshape(dim), ours["table"][0]
    config = ViTConfig(
        img_size=side * patch,
        in_chans=channels,
        num_classes=len(ours["head.weight"]) if "head.weight" in ours else 0,
        patch_size=patch,
        depth=1 + max(int(found[1]) for key in ours if (found := re.match(r"blocks\.(\d+)\.", key))),
        dim=dim,
        mlp_dim=len(ours["blocks.0.mlp.0.weight"]),
        heads=dim // HEAD_WIDTH,
        drop_path_schedule="linear",
        norm_eps=1e-6,
        plain_attention=True,
    )
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
