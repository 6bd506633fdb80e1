"""DeiT from public weights: the logits are those of the network the names in the file describe."""

from __future__ import annotations

import importlib.util
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import restated
import torch
from commands import call, done, flat, tiny_yaml
from safetensors.torch import save_file
from torch import Tensor

from polarvit.models import WeightsError, create_model, load_pretrained
from polarvit.models.deit import from_public, read_public

HEADS, DIM, PATCH, SIDE, DEPTH, CLASSES = 2, 128, 4, 12, 2, 5


def public(**changed: Tensor | None) -> dict[str, Tensor]:
    """Random weights under the names of timm; `changed` replaces or (None) removes some."""
    generator = torch.Generator().manual_seed(0)
    rows = (SIDE // PATCH) ** 2 + 1
    shapes = {"cls_token": (1, 1, DIM), "pos_embed": (1, rows, DIM), "patch_embed.proj.weight": (DIM, 3, PATCH, PATCH)}
    shapes |= {"patch_embed.proj.bias": (DIM,), "head.weight": (CLASSES, DIM), "head.bias": (CLASSES,)}
    linear = {"attn.qkv": (3 * DIM, DIM), "attn.proj": (DIM, DIM), "mlp.fc1": (2 * DIM, DIM), "mlp.fc2": (DIM, 2 * DIM)}
    for i in range(DEPTH):
        shapes |= {f"blocks.{i}.{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"blocks.{i}.{name}.bias": shape[:1] for name, shape in linear.items()}
    norms = ["norm", *(f"blocks.{i}.{name}" for i in range(DEPTH) for name in ("norm1", "norm2"))]
    shapes |= {f"{name}.{what}": (DIM,) for name in norms for what in ("weight", "bias")}
    state = {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    state |= {name.replace("__", "."): tensor for name, tensor in changed.items() if tensor is not None}
    return {name: tensor for name, tensor in state.items() if changed.get(name.replace(".", "__"), tensor) is not None}


@pytest.fixture(params=["model.pth", "plain.pth", "weights.safetensors"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    if path.suffix == ".safetensors":
        save_file(public(), path)
    else:
        torch.save({"model": public()} if path.stem == "model" else public(), path)
    return path


def test_public_weights_give_the_logits_of_the_network_they_describe(file: Path) -> None:
    model = from_public(read_public(file), heads=HEADS).double()
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    state = restated.State({key: tensor.double().numpy() for key, tensor in public().items()})
    expected = np.stack([restated.deit(state, image.numpy(), HEADS, PATCH) for image in images])
    np.testing.assert_allclose(model(images).detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_what_was_read_can_be_saved_and_fine_tuned(tmp_path: Path) -> None:
    model = from_public(public(), heads=HEADS)
    assert model.default_cfg["mean"] == (0.485, 0.456, 0.406)
    model.save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match="classifier of 5 classes was left out"):
        tuned = load_pretrained(tmp_path / "model", num_classes=7, drop_path=0.2)
    assert tuned.default_cfg["mean"] == (0.485, 0.456, 0.406)
    assert torch.equal(tuned.blocks[1].attention.qkv.weight, public()["blocks.1.attn.qkv.weight"])
    assert tuned(torch.zeros(1, 3, SIDE, SIDE)).shape == (1, 7)


def test_a_file_without_classifier_is_a_model_without() -> None:
    model = from_public(public(head__weight=None, head__bias=None), heads=HEADS)
    assert model.num_classes == 0
    assert model(torch.zeros(1, 3, SIDE, SIDE)).shape == (1, DIM)


def test_deit_small_has_the_published_size() -> None:
    with torch.device("meta"):
        model = create_model("deit_small")
    assert model.count() == 22_050_664
    assert model.architecture == "deit_small"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cls_token": None}, "no cls_token: not a plain ViT with a class token"),
        ({"patch_embed__proj__weight": None}, "no patch_embed.proj.weight: not a plain ViT"),
        ({"dist_token": torch.zeros(1, 1, DIM)}, "has a dist_token"),
        ({"pos_embed": torch.zeros(1, 8, DIM)}, "7 positions"),
        ({"blocks__0__ls1__gamma": torch.ones(DIM)}, "unknown key blocks.0.ls1.gamma"),
        ({"blocks__1__attn__qkv__bias": None}, "missing key blocks.1.attention.qkv.bias"),
        ({"norm__bias": torch.zeros(3)}, "norm.bias has shape [3], expected [128]"),
        ({"head__bias": torch.zeros(2, 5)}, "unknown keys head.bias, head.weight"),
        ({"cls_token": torch.zeros(DIM)}, "cls_token has shape [128], expected 3 axes"),
        ({"cls_token": torch.zeros(1, 2, DIM)}, "token has shape [256], expected [128]"),
        ({"patch_embed__proj__weight": torch.zeros(DIM, 48)}, "patch_embed.proj.weight has shape [128, 48]"),
        ({"blocks__7__norm1__weight": torch.ones(DIM)}, "found [0, 1, 7]"),
        ({"blocks__0__norm1__weight": None, "blocks__1__norm1__weight": None}, "found []"),
    ],
)
def test_other_networks_are_refused_by_name(changed: dict[str, Tensor | None], words: str) -> None:
    with pytest.raises(WeightsError, match=f"some.pth: .*{re.escape(words)}"):
        from_public(public(**changed), "some.pth", heads=HEADS)


def test_heads_that_are_not_known_must_be_said() -> None:
    with pytest.raises(WeightsError, match=r"of width 128 it must be said; known are 192 \(3\)"):
        from_public(public())
    with pytest.raises(WeightsError, match="of width 128 3 do not divide it"):
        from_public(public(), heads=3)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("executed",)


@pytest.mark.parametrize("content", [b"", b"no zip", pickle.dumps(Trap(), protocol=2)], ids=["empty", "text", "code"])
def test_a_file_is_read_and_never_executed(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(WeightsError, match=r"x\.pth: not (readable as weights|a checkpoint of tensors)"):
        read_public(tmp_path / "x.pth")
    assert "executed" not in capsys.readouterr().out
    torch.save([1, 2], tmp_path / "y.pth")
    with pytest.raises(WeightsError, match="expected tensors by name"):
        read_public(tmp_path / "y.pth")


def test_the_command_writes_a_folder_to_start_from(tmp_path: Path) -> None:
    torch.save({"model": public()}, tmp_path / "public.pth")
    assert "128, MLP 256, 2 heads, patch 4, 12 px, 5 classes" in flat(
        done("models", "import", tmp_path / "public.pth", "--out", tmp_path / "model", "--heads", 2)
    )
    (tmp_path / "tiny.yaml").write_text(tiny_yaml())
    done("finetune", tmp_path / "model", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--device", "cpu")
    tuned = load_pretrained(tmp_path / "run" / "model")
    assert (type(tuned).__name__, tuned.num_classes) == ("DeiT", 10)
    again = call("models", "import", tmp_path / "public.pth", "--out", tmp_path / "model")
    assert again.exit_code == 2
    assert "exists and is not an empty folder" in flat(again.output)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_timms_own_network_gives_the_same_logits() -> None:
    import timm

    theirs = timm.create_model("deit_small_patch16_224", depth=2).eval()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(from_public(theirs.state_dict())(images), theirs(images), rtol=1e-4, atol=1e-5)
