"""Whole systems side by side: what a step costs, which of them train far out, what a known defect costs."""

from polarvit.experiments.registry import TRAINING, Experiment, Row


def goes_on(system: str, label: str) -> Row:
    """A system of `stability`, in float32."""
    return Row(system, f"{label}: radii at which it goes on", "")


def in_float64(system: str, label: str) -> Row:
    """Its twin: the control far out."""
    return Row(f"{system}-fp64", f"{label}, the same from 8 and 12 in float64", "")


SYSTEMS = (
    Experiment(
        "cost",
        "forward and backward of ViT-Tiny, 32 px, batch 128, compiled, float32 (the paper's on an RTX A5000), "
        "and how many times that of the Euclidean ViT",
        "Table 8 (tab:cost)",
        "polarvit.experiments.cost",
        rows=(
            Row("vit_tiny", "Euclidean ViT", "21 ms"),
            Row("lorentz_vit_tiny", "Lorentz ViT, ambient arithmetic", "52 ms"),
            Row("polar_vit_tiny", "Polar-ViT, polar arithmetic", "58 ms"),
            Row("hexformer_tiny", "HexFormer", ""),
            Row("hexformer_hybrid_tiny", "HexFormer-Hybrid", ""),
            Row("lvit_tiny", "LViT", ""),
            Row("hvt_tiny", "HVT", ""),
        ),
        cost="up to 10 GPU minutes, most of them compilation (in parts with --only)",
        takes=frozenset({"only", "device"}),
    ),
    Experiment(
        "stability",
        "training every system as it is and with its embeddings pushed out to mean radius 2, 4, 8, 12: which go on, "
        "and whether it is float32 that breaks the others",
        "our own: what the paper's precision claims mean for training",
        "polarvit.experiments.stability",
        rows=(
            goes_on("polar_vit_tiny", "Polar-ViT"),
            goes_on("vit_tiny", "Euclidean ViT (never pushed)"),
            goes_on("lorentz_vit_tiny", "Lorentz ViT, ambient"),
            goes_on("hexformer_tiny", "HexFormer"),
            goes_on("hexformer_hybrid_tiny", "HexFormer-Hybrid"),
            goes_on("lvit_tiny", "LViT"),
            goes_on("hvt_tiny", "HVT (its ball ends at radius 6.2)"),
            in_float64("polar_vit_tiny", "Polar-ViT"),
            in_float64("lorentz_vit_tiny", "Lorentz ViT, ambient"),
            in_float64("hexformer_tiny", "HexFormer"),
            in_float64("hexformer_hybrid_tiny", "HexFormer-Hybrid"),
            in_float64("lvit_tiny", "LViT"),
        ),
        cost="about 0.3 GPU hours, not counting the twins in float64, which are not timed (in parts with --minutes)",
        takes=TRAINING - {"runs"},
    ),
    Experiment(
        "hexformer-defect",
        "HexFormer with and without the clamp of its key projections, CIFAR-100 top-1 %",
        "our own: what the defect of the published baseline costs",
        "polarvit.experiments.hexformer_defect",
        rows=(Row("sound", "without the clamp", ""), Row("clamped", "with the clamp", "")),
        cost="about 0.1 GPU hours at 11,710 steps",
        takes=TRAINING,
        any_length=True,
    ),
)
