"""The shorter side resized, the central square cut out: how an image gets the model's size when nothing is drawn."""

from PIL import Image

from polarvit.data.augment.crop import Interpolation

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def central_cut(height: int, width: int, resize: int, size: int) -> tuple[int, int, int, int]:
    """(height, width) of an image whose shorter side becomes `resize`, and (top, left) of its central square.

    An odd margin is halved as torchvision does, to the even neighbour: published scores were measured so.
    """
    short = min(height, width)
    height, width = round(height * resize / short), round(width * resize / short)
    return height, width, round((height - size) / 2), round((width - size) / 2)


def central_square(
    image: Image.Image, size: int, *, resize: int | None = None, interpolation: Interpolation = "bicubic"
) -> Image.Image:
    """Resize the shorter side to `resize` (None: to `size`) and cut the central square of `size`."""
    height, width, top, left = central_cut(image.height, image.width, resize or size, size)
    image = image.resize((width, height), RESAMPLING[interpolation])
    return image.crop((left, top, left + size, top + size))
