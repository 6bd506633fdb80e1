"""Medical segmentation with a U-Net: test Dice, mean of foreground and background."""

from polarvit.experiments.registry import TRAINING, Experiment, Row

SETS = {"isic2016": "ISIC 2016", "isic2018": "ISIC 2018", "kvasir": "Kvasir-SEG", "sanet": "SANET", "busi": "BUSI"}
PAPER = {
    "euclidean": ("Euclidean U-Net", ("0.92", "0.89", "0.86", "0.78", "0.82")),
    "poincare": ("Poincare U-Net", ("0.91", "0.87", "0.83", "0.76", "0.80")),
    "ambient": ("Lorentz U-Net, ambient", ("0.92", "0.81", "0.79", "0.73", "0.71")),
    "polar": ("Lorentz U-Net, polar", ("0.93", "0.89", "0.86", "0.81", "0.78")),
}
CLIPPED = ("ambient_clipped", "Lorentz U-Net, ambient, clipped")
"""The ambient net again with the benchmark's clipping of gradients, where it diverges without; run by name only."""
WEIGHTS = "minutes, from the weights of `polarvit reproduce segmentation`"

SEGMENTATION = (
    Experiment(
        "segmentation",
        "polar layers in a convolutional network, test Dice",
        "Table 9 (tab:unet)",
        "polarvit.experiments.segmentation.table",
        tuple(
            Row(f"{model}_{key}", f"{SETS[key]}, {label}", value)
            for model, (label, values) in PAPER.items()
            for key, value in zip(SETS, values, strict=True)
        )
        + tuple(Row(f"{CLIPPED[0]}_{key}", f"{label}, {CLIPPED[1]}", "") for key, label in SETS.items()),
        "about 0.02 GPU hours a row of Kvasir-SEG, SANET or BUSI when nine share the GPU; others not timed",
        takes=TRAINING,
    ),
    Experiment(
        "segmentation-robustness",
        "test Dice under blur, noise and changed contrast: clean to the mean over strengths",
        "a question of our own",
        "polarvit.experiments.segmentation.robustness",
        tuple(
            Row(f"{key}_{corruption}", f"{label}, {corruption}", "")
            for key, label in SETS.items()
            for corruption in ("blur", "noise", "contrast")
        ),
        WEIGHTS,
        takes=TRAINING - {"only", "side_by_side", "minutes"},
    ),
    Experiment(
        "segmentation-pictures",
        "image, truth, Euclidean, polar, and what distance from the origin means at the polar bottleneck",
        "a question of our own",
        "polarvit.experiments.segmentation.pictures",
        tuple(Row(key, label, "") for key, label in SETS.items()),
        WEIGHTS,
        takes=TRAINING - {"only", "side_by_side", "minutes"},
    ),
)
