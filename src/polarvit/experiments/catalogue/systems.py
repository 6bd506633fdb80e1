"""Whole systems side by side: what a step costs, which of them train far out, what a known defect costs."""

from polarvit.experiments.registry import TRAINING, Experiment, Row

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
        "training every system as it is and with its embeddings pushed out to mean radius 2, 4, 8, 12: which go on",
        "our own: what the paper's precision claims mean for training",
        "polarvit.experiments.stability",
        rows=tuple(
            Row(name, f"{label}: radii at which it goes on", "")
            for name, label in (
                ("polar_vit_tiny", "Polar-ViT"),
                ("vit_tiny", "Euclidean ViT (never pushed)"),
                ("lorentz_vit_tiny", "Lorentz ViT, ambient"),
                ("hexformer_tiny", "HexFormer"),
                ("hexformer_hybrid_tiny", "HexFormer-Hybrid"),
                ("lvit_tiny", "LViT"),
                ("hvt_tiny", "HVT"),
            )
        ),
        cost="about 0.3 GPU hours (in parts with --minutes)",
        takes=TRAINING - {"runs", "side_by_side"},
    ),
    Experiment(
        "hexformer-defect",
        "HexFormer with and without the clamp of its key projections, CIFAR-100 top-1 %",
        "our own: what the defect of the published baseline costs",
        "polarvit.experiments.hexformer_defect",
        rows=(Row("sound", "without the clamp", ""), Row("clamped", "with the clamp", "")),
        cost="about 0.3 GPU hours at 11,710 steps",
        takes=TRAINING,
        any_length=True,
    ),
)
