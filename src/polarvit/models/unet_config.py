"""Typed configurations of the U-Nets. `docs/unet.md` has the topology and what the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from polarvit.models.config import ImageConfig


class Stage(NamedTuple):
    """Channels of one pair of convolutions: into it, after the first (and the second) of them."""

    inputs: int
    outputs: int


@dataclass(frozen=True, kw_only=True)
class UNetConfig(ImageConfig):
    """The reference topology: `levels` halvings, twice the channels after each, two 3x3 convolutions a stage."""

    img_size: int | tuple[int, int] = 256
    num_classes: int = 2
    width: int = 8
    """Channels at full resolution."""
    levels: int = 4
    """Number of halvings."""
    norm_eps: float = 1e-5
    momentum: float = 0.1
    """Weight of a batch in the running statistics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in self.image:
            if side % 2**self.levels:
                raise ValueError(
                    f"{type(self).__name__}: img_size {self.img_size} cannot be halved {self.levels} times; "
                    f"it must be a multiple of {2**self.levels}"
                )

    @property
    def dim(self) -> int:
        """Channels of the features that the classifier sees."""
        return self.width

    @property
    def shape(self) -> str:
        widths = [stage.outputs for stage in self.encoder]
        return f"{self.levels} levels, channels {'-'.join(map(str, widths))}"

    @property
    def encoder(self) -> list[Stage]:
        """Stages on the way down; the last is the bottleneck, of twice the channels again."""
        outputs = [self.width * 2**level for level in range(self.levels + 1)]
        return [Stage(*pair) for pair in zip([self.in_chans, *outputs], outputs, strict=False)]

    @property
    def decoder(self) -> list[Stage]:
        """Stages on the way up: the skip and the risen features, which a transposed convolution has halved."""
        outputs = [self.width * 2**level for level in reversed(range(self.levels))]
        return [Stage(2 * width, width) for width in outputs]


@dataclass(frozen=True, kw_only=True)
class BilinearUNetConfig(UNetConfig):
    """The reference topology with bilinear upsampling, which has no weights: the bottleneck does not double.

    What rises from below a level has its channels already, so a decoder stage goes to half of them (at the
    first level, which has no finer one, to the same number).
    """

    @property
    def encoder(self) -> list[Stage]:
        stages = super().encoder
        return [*stages[:-1], Stage(stages[-1].inputs, stages[-1].inputs)]

    @property
    def decoder(self) -> list[Stage]:
        stages = []
        for level in reversed(range(self.levels)):
            width = self.width * 2**level
            stages.append(Stage(2 * width, max(width // 2, self.width)))
        return stages
