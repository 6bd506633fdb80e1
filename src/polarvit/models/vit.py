"""The Euclidean twin of Polar-ViT: the same depth, width, heads and patches, in ordinary coordinates.

It is the ViT that HexFormer compares with (2,709,805 parameters at Tiny on CIFAR-100): pre-norm, class token, no bias
on queries, keys and values, and one learned temperature per layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polarvit.models.base import VisionModel
from polarvit.models.config import ViTConfig
from polarvit.models.entry import SIZES, Entry
from polarvit.nn.embed import check_dtype, check_images, patchify, resize_table
from polarvit.nn.position import sincos_table
from polarvit.parameters import NO_DECAY, TABLE, Role

MOST_WRITTEN_OUT = 127
"""Tokens up to which attention may write its weights out."""


def dot_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(d)) v.

    The kernels behind `scaled_dot_product_attention` take float32 in tiles of 64 tokens: 65 (an image and its class
    token) cost 2.8 times as much as 64. There the weights are written out.
    """
    tokens, full_width = k.shape[-2], v.dtype == torch.float32
    if q.is_cuda and full_width and dropout == 0 and tokens <= MOST_WRITTEN_OUT and tokens % 64 != 0:
        return written_out_attention(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)


def written_out_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same by two products, divided by the sum last; not as a softmax, which compilers turn back into the above."""
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return (weights @ v) / weights.sum(-1, keepdim=True)


class Attention(nn.Module):
    """Multi-head attention by scaled dot products, [B, N, dim] -> [B, N, dim].

    HexFormer's twin has a learned temperature and no bias on queries, keys and values; `plain` is the other way round,
    as Dosovitskiy et al. and DeiT have it.
    """

    roles: ClassVar[dict[str, Role]] = {"temperature": NO_DECAY}

    def __init__(self, dim: int, heads: int, dropout: float, plain: bool = False) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=plain)
        self.out = nn.Linear(dim, dim)
        self.temperature = None if plain else nn.Parameter(torch.ones(()))

    def separate_init(self) -> None:
        """Xavier for queries, keys and values by themselves: as one matrix they would start 0.7 times as large."""
        for weight in self.qkv.weight.detach().chunk(3):
            nn.init.xavier_normal_(weight)

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, over their temperature, keys and values, [B, H, N, dim/H] each."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q if self.temperature is None else (q / self.temperature).to(v.dtype), k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads_of(x)
        x = dot_attention(q, k, v, self.dropout if self.training else 0.0)
        return self.out(x.transpose(1, 2).flatten(2))

    def attention_map(self, x: Tensor) -> Tensor:
        """Attention weights [B, H, N, N]."""
        q, k, _ = self.heads_of(x)
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)


class Block(nn.Module):
    """Pre-norm transformer block with stochastic depth."""

    def __init__(self, config: ViTConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        self.drop_path = drop_path
        self.norm1 = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.attention = Attention(c.dim, c.heads, c.dropout, c.plain_attention)
        self.norm2 = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.mlp = nn.Sequential(nn.Linear(c.dim, c.mlp_dim), nn.GELU(), nn.Linear(c.mlp_dim, c.dim))

    def keep(self, step: Tensor) -> Tensor:
        """Drop the step of whole samples while training."""
        if not self.training or self.drop_path == 0:
            return step
        kept = step.new_empty(step.shape[0], 1, 1).bernoulli_(1 - self.drop_path)
        return step * kept / (1 - self.drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.keep(self.attention(self.norm1(x)))
        return x + self.keep(self.mlp(self.norm2(x)))


class ViT(VisionModel):
    """Euclidean vision transformer (`ViTConfig`), with timm's surface."""

    config_class = ViTConfig
    roles: ClassVar[dict[str, Role]] = {"table": TABLE, "token": TABLE}

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        c = config
        self.config: ViTConfig
        self.embed = nn.Linear(c.patch_size**2 * c.in_chans, c.dim)
        self.token = nn.Parameter(c.position_std * torch.randn(c.dim)) if c.readout == "class_token" else None
        rows = c.grid[0] * c.grid[1] + (self.token is not None)
        self.table: Tensor | None
        if c.position_table == "learned":
            self.table = nn.Parameter(c.position_std * torch.randn(rows, c.dim))
        elif c.position_table == "sincos":
            table = sincos_table(c.grid, c.dim)
            padded = torch.cat([table.new_zeros(rows - len(table), c.dim), table])
            self.register_buffer("table", padded, persistent=False)
        else:
            self.table = None
        self.blocks = nn.ModuleList(Block(c, drop) for drop in c.drop_paths())
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.head = self._make_head(c.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Attention):
                module.separate_init()

    def _make_head(self, num_classes: int) -> nn.Module:
        return nn.Linear(self.config.dim, num_classes) if num_classes else nn.Identity()

    def tokens(self, images: Tensor) -> Iterator[Tensor]:
        """The stream after the embedding and after every block, [B, N, dim] each."""
        check_images("ViT", images, self.config.in_chans, self.config.image)
        check_dtype(self, images)
        x = self.embed(patchify(images, self.config.patch_size))
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], 1, -1).to(x.dtype), x], 1)
        if self.table is not None:
            x = x + self.table
        yield x
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(self.run, block, x, use_reentrant=False)
            else:
                x = self.run(block, x)
            yield x

    def forward_features(self, images: Tensor) -> Tensor:
        """Tokens [B, N, dim] after the final norm."""
        x = None
        for x in self.tokens(images):  # noqa: B007 - the last one
            pass
        return self._normed(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits [B, classes], or the pooled features [B, dim]."""
        pooled = x[:, 0] if self.token is not None else x.mean(1)
        return pooled if pre_logits else self.head(pooled)

    def no_weight_decay(self) -> set[str]:
        """Names for timm's optimizers; ours reads roles."""
        return self._names_without_decay()

    def resize_positions(self, state: dict[str, Tensor], grid: tuple[int, int]) -> None:
        """Fit the position table in `state` (made for `grid`) to this model's grid, in place."""
        if "table" in state:
            extra = int(self.token is not None)
            table = state["table"]
            state["table"] = torch.cat([table[:extra], resize_table(table[extra:], grid, self.config.grid)])


ENTRIES = tuple(
    Entry(
        f"vit_{size}",
        ViT,
        ViTConfig(**fields, position_table="sincos" if size == "small" else "learned"),
        "Dosovitskiy et al., 2021",
        "HexFormer's Euclidean baseline",
    )
    for size, fields in SIZES.items()
)
