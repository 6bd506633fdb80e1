"""The benchmarks of attention, kernels and scaling run everywhere and leave what they promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import call, done, flat

from polarvit.cli.bench import sizes
from polarvit.experiments.bench import attention, kernels, scaling
from polarvit.experiments.bench.operations import NARROW, OPERATIONS, SIZES

CPU = torch.device("cpu")


def written(folder: Path, name: str) -> dict[str, Any]:
    """The record of a run on a CPU; its picture exists too."""
    assert (folder / f"{name}-cpu.png").stat().st_size > 1000
    record: dict[str, Any] = json.loads((folder / f"{name}-cpu.json").read_text())
    assert {"machine", "packages", "commit"} <= set(record)
    assert record["quick"] is True
    return record


def test_attention_is_timed_against_sdpa(tmp_path: Path) -> None:
    said = flat(done("bench", "attention", "--device", "cpu", "--seconds", 0, "--out", tmp_path))
    assert "not a result" in said
    record = written(tmp_path, "attention")
    assert [tuple(each["shape"]) for each in record["shapes"]] == list(attention.SMALL)
    for each in record["shapes"]:
        rows = {row["key"]: row for row in each["rows"]}
        assert list(rows) == list(attention.LABELS)
        assert rows["sdpa"]["both"]["ratio"] == 1
        for row in rows.values():
            assert row["both"]["ms"] > 0
            total = row["forward"]["ms"] + row["backward"]["ms"]
            assert total == pytest.approx(row["both"]["ms"], rel=1e-3)


@pytest.mark.parametrize(
    ("bench", "part", "rows", "options"),
    [
        (attention, "measure", "shapes", {"shapes": ((1, 1, 2, 8), (1, 1, 3, 8))}),
        (kernels, "measure", "rows", {"only": ["merge", "residual"]}),
        (scaling, "attention_at", "attention", {"tokens": (2, 3), "parts": ("attention",)}),
    ],
    ids=["attention", "kernels", "scaling"],
)
def test_what_is_measured_outlives_an_interruption(bench, part, rows, options, tmp_path, monkeypatch) -> None:
    whole, done_before = getattr(bench, part), []

    def interrupted(*arguments: Any) -> Any:
        if done_before:
            raise KeyboardInterrupt
        done_before.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(bench, part, interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.run(device="cpu", seconds=0.0, out=tmp_path, **options)
    (path,) = tmp_path.glob("*-cpu.json")
    assert len(json.loads(path.read_text())[rows]) == 1


def test_shapes_of_attention_are_checked_at_the_door() -> None:
    assert sizes("1,12,4096,64") == (1, 12, 4096, 64)
    for wrong in ("1,12,4096", "1,12,0,64", "a,b,c,d"):
        result = call("bench", "attention", "--shape", wrong, "--device", "cpu")
        assert result.exit_code == 2
        assert "B,H,N,d in positive numbers" in flat(result.stderr)


def test_the_ways_to_attend_polar_agree() -> None:
    outputs = []
    for key in ("polar", "row-major", "reference"):
        torch.manual_seed(0)
        core = attention.Core(key, (2, 2, 5, 8), CPU)
        core.prepare()
        assert all(gradient.isfinite().all() for gradient in core.both())
        outputs.append(core.forward())
    for other in outputs[1:]:
        torch.testing.assert_close(tuple(outputs[0]), tuple(other))


def test_the_reference_stays_out_where_it_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LARGEST_MATRIX", 4 * 2 * 2 * 4 * 4)
    shapes = ((2, 2, 4, 8), (2, 2, 5, 8))
    found = attention.run(shapes=shapes, device="cpu", seconds=0.0, out=None)["shapes"]
    assert ["reference" in [row["key"] for row in each["rows"]] for each in found] == [True, False]


def test_the_memory_of_attention_is_judged_by_size_and_growth() -> None:
    memory = [{"tokens": 8192, "polar": 500.0}, {"tokens": 16384, "polar": 2100.0}]
    size, growth = attention.judge([], memory)
    assert (size.value, size.record(True)["verdict"]) == (2100.0, "missed")
    assert (growth.value, growth.record(True)["verdict"]) == (4.2, "missed")
    assert attention.judge([], memory[:1]) == []


def test_every_kernel_is_timed_with_and_without(tmp_path: Path) -> None:
    done("bench", "kernels", "--device", "cpu", "--seconds", 0, "--out", tmp_path)
    record = written(tmp_path, "kernels-tiny")
    assert [row["key"] for row in record["rows"]] == [each.key for each in OPERATIONS]
    for row, operation in zip(record["rows"], OPERATIONS, strict=True):
        assert ("ratio" in row) == ("fused" in row) == operation.fused
        for side in ("fused", "plain") if operation.fused else ("plain",):
            times = row[side]["both"]
            assert times["gb_per_second"] == pytest.approx(row["bytes"]["both"] / (1e6 * times["ms"]), rel=1e-3)
            assert times["over_floor"] == pytest.approx(1e3 * times["ms"] / row["floor_us"]["both"], rel=1e-3)


def test_the_bytes_of_an_operation_are_those_of_its_tensors() -> None:
    operation = next(each for each in OPERATIONS if each.key == "residual")
    ready = kernels.Ready(operation, NARROW, CPU, plain=True)
    point = 4 * NARROW.batch * NARROW.tokens * (NARROW.dim + 1)
    assert ready.bytes_moved() == {"forward": 3 * point, "both": 8 * point}  # reads 2 + 2 + 1, writes 1 + 2


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.key)
def test_every_input_of_an_operation_matters(operation: Any) -> None:
    ready = kernels.Ready(operation, NARROW, CPU, plain=True)
    gradients = ready.both(0)
    assert all(g is not None and g.isfinite().all() and g.any() for g in gradients[: len(ready.sets[0])])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.key)
def test_gradients_come_in_the_order_of_memory(operation: Any) -> None:
    assert all(x.is_contiguous() for x in kernels.Ready(operation, NARROW, CPU, plain=True).upstream)
    turned = torch.zeros(2, 3, 5, 7).permute(2, 0, 3, 1)
    assert kernels.as_stored(turned).shape == (2, 3, 5, 7)


def test_sizes_of_the_kernels_are_those_of_the_models() -> None:
    from polarvit.models.registry import entry

    for size, each in SIZES.items():
        config = entry(f"polar_vit_{size}").config
        assert (each.dim, each.heads, each.hidden) == (config.dim, config.heads, config.mlp_dim)
        assert config.grid == (each.side, each.side)


def test_an_unknown_kernel_is_told_in_one_line() -> None:
    result = call("bench", "kernels", "--only", "fft", "--device", "cpu")
    assert result.exit_code == 2
    assert "error: unknown kernel 'fft'" in result.stderr


def test_scaling_looks_at_tokens_and_batches(tmp_path: Path) -> None:
    words = ("--tokens", 4, "--tokens", 8, "--batch", 2, "--batch", 3, "--only", "euclidean")
    done("bench", "scaling", "--device", "cpu", "--seconds", 0, *words, "--out", tmp_path)
    record = written(tmp_path, "scaling")
    assert [row["tokens"] for row in record["attention"]] == [4, 8]
    assert all(row["ratio"] > 0 for row in record["attention"])
    assert [row["batch"] for row in record["steps"]] == [2, 3]


def test_attention_scales_at_a_constant_number_of_tokens() -> None:
    assert {shape[0] * shape[2] for shape in (scaling.shape_of(n, True) for n in scaling.TOKENS)} == {16384}
    assert (min(scaling.TOKENS), max(scaling.TOKENS)) == (64, 16384)
    assert (min(scaling.BATCHES), max(scaling.BATCHES)) == (32, 1024)


def test_one_part_of_scaling_can_be_left_out_and_leaves_the_record_of_both_alone(tmp_path: Path) -> None:
    record = scaling.run(parts=["attention"], tokens=[4], device="cpu", seconds=0.0, out=tmp_path)
    assert record["steps"] == []
    assert {path.name for path in tmp_path.iterdir()} == {f"scaling-attention-cpu.{end}" for end in ("json", "png")}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_all_of_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = attention.run(shapes=((2, 2, 40, 16),), tokens=(128, 256), device="cuda", seconds=0.0, out=None)
    assert not [row for row in found["shapes"][0]["rows"] if "failed" in row]
    assert all(row["polar"] > 0 for row in found["extra_memory_mib"])
    monkeypatch.setitem(SIZES, "tiny", NARROW)
    rows = kernels.run(device="cuda", seconds=0.0, only=["residual", "attention"], out=None)["rows"]
    assert all(row["ratio"]["both"] > 0 for row in rows)
