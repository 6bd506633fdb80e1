"""Packing images with masks: the prepared folder of `packed`, with `<split>-masks.npy` in place of labels.

Masks are uint8 [N, H, W] of 0 (background) and 1 (foreground). The file `meta.json` also records which file went into
which split, so that a split can be quoted and made again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polarvit.data.augment.draws import Draws, Stream
from polarvit.data.errors import DataError
from polarvit.data.packed import FORMAT, Progress, counter, describe_file, new_folder
from polarvit.data.sources.masks import MaskSource, Pair, read_pair
from polarvit.data.square import Padding, square_image, square_mask

CLASSES = ("background", "foreground")


def prepare_masks(
    source: MaskSource,
    out: str | Path,
    *,
    image_size: int = 256,
    validation: float | None = None,
    test: float | None = None,
    seed: int = 0,
    padding: Padding = "zeros",
    progress: Progress | None = None,
) -> Path:
    """Pack all splits of a source into the new folder `out`, which appears only when it is complete.

    Args:
        image_size: side of the squares (see `square`).
        validation: share of the training split that becomes the validation split, rounded down; None: as the
            source says.
        test: the same for the test split.
        seed: of these choices.
        padding: what makes an image square.
        progress: called with (images done, images in all).
    """
    given = {"validation": validation, "test": test}
    held = {**source.held_out, **{name: share for name, share in given.items() if share is not None}}
    parts = split_pairs(source, held["validation"], held["test"], seed)
    with new_folder(Path(out)) as work:
        steps = counter(progress, sum(map(len, parts.values())))
        splits = {name: _write_split(work, name, pairs, image_size, padding, steps) for name, pairs in parts.items()}
        meta = {
            "format": FORMAT,
            "source": source.description,
            "classes": list(CLASSES),
            "image_size": [image_size, image_size],
            "resized_to": image_size,
            "padding": padding,
            "held_out": {**held, "seed": seed},
            "splits": splits,
        }
        (work / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
    return Path(out)


def split_pairs(source: MaskSource, validation: float, test: float, seed: int) -> dict[str, list[Pair]]:
    """The pairs of every split, after the shares of the training split that were asked for are held out."""
    train = list(source.pairs["train"])
    order = np.argsort(Draws(seed, np.array([0]), np.array([-1])).bits(Stream.SPLIT, len(train))[0])
    parts, start = {}, 0
    for name, share in (("test", test), ("validation", validation)):
        if not share:
            continue
        if name in source.pairs:
            raise DataError(f"{source.description}: has a {name} split of its own; leave {name} at 0")
        count = int(share * len(train) + 1e-9)  # 0.57 of 100 images are 57, whatever 0.57 is in binary
        if count == 0:
            raise DataError(f"{source.description}: {share:g} of {len(train)} images are none for {name}; take more")
        if start + count >= len(train):
            raise DataError(
                f"{source.description}: {start + count} of {len(train)} images held out leave none to train on; "
                "hold out less"
            )
        parts[name] = [train[index] for index in sorted(order[start : start + count].tolist())]
        start += count
    rest = [train[index] for index in sorted(order[start:].tolist())]
    parts = {"train": rest, **{name: list(pairs) for name, pairs in source.pairs.items() if name != "train"}, **parts}
    return {name: parts[name] for name in ("train", "validation", "test") if name in parts}


def _write_split(
    folder: Path, name: str, pairs: list[Pair], size: int, padding: Padding, steps: Iterator[None]
) -> dict[str, Any]:
    """Write the arrays of one split and describe them."""
    shape = (len(pairs), size, size)
    images = np.lib.format.open_memmap(folder / f"{name}-images.npy", mode="w+", dtype=np.uint8, shape=(*shape, 3))
    masks = np.lib.format.open_memmap(folder / f"{name}-masks.npy", mode="w+", dtype=np.uint8, shape=shape)
    for row, pair in enumerate(pairs):
        image, mask = read_pair(pair)
        images[row], masks[row] = square_image(image, size, padding), square_mask(mask, size)
        next(steps, None)
    images.flush()
    masks.flush()
    return {
        "count": len(pairs),
        "names": [pair.name for pair in pairs],
        "foreground": float(masks.mean()),
        "empty_masks": int((~masks.any((1, 2))).sum()),
        "files": {kind: describe_file(folder / f"{name}-{kind}.npy") for kind in ("images", "masks")},
    }
