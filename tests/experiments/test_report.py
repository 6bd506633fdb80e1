"""The demo and the report: what is on the page, that it is safe, and that it needs nothing else."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import tiny_recipe
from typer.testing import CliRunner

from polarvit.cli import app
from polarvit.experiments.demo import run_demo
from polarvit.experiments.report import page, write_report
from polarvit.experiments.report.charts import confusion, radii, rank_correlation
from polarvit.experiments.report.collect import Run, Seen, read_run
from polarvit.experiments.report.disk import disk, extremes, place
from polarvit.experiments.report.svg import ticks
from polarvit.training import Interrupted, train

HOSTILE = '<script>alert("x")</script>&\'"'
SMALL = ["train.steps=2", "watch.log_every=1", "optim.warmup=1", "train.batch_size=8", "model.options.depth=1"]


@pytest.fixture(scope="module", autouse=True)
def _few_points():
    """A picture of 60 points is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polarvit.experiments.report.disk.POINTS", 60)
        yield


@pytest.fixture(scope="module")
def demo(_few_points: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with two steps; returns its folder."""
    out = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "--out", str(out), *(f"--set={change}" for change in SMALL)])
    assert result.exit_code == 0, result.output
    assert "mean radius" in result.output
    assert "report.html" in result.output
    return out


def text_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_demo_writes_a_page_with_all_its_sections(demo: Path) -> None:
    text = text_of(demo)
    for heading in ("Learning", "Test images in hyperbolic space", "Does the radius mean something?", "Confusion"):
        assert f"<h2>{heading}" in text
    for title in ("training loss", "test loss", "test accuracy", "Poincaré disk", "Are far points more certain?"):
        assert title in text
    assert text.count("<svg") == 9
    assert "NaN" not in text.replace("NaN-", "")
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text)


def test_the_page_loads_nothing_from_elsewhere(demo: Path) -> None:
    text = text_of(demo)
    assert "default-src 'none'" in text
    outside = re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"']*|url\(|@import|<script|<link|<iframe""", text)
    assert outside == []


def test_the_page_is_well_formed(demo: Path) -> None:
    open_tags: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta",):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

        def handle_startendtag(self, tag: str, attrs: object) -> None: ...

    Reader().feed(text_of(demo))
    assert open_tags == []


def test_the_demo_again_takes_what_is_there(demo: Path) -> None:
    metrics = demo / "digits" / "metrics.json"
    before = metrics.stat().st_mtime_ns
    said: list[str] = []
    run_demo(demo, overrides=SMALL, say=said.append)
    assert metrics.stat().st_mtime_ns == before
    assert any(line.startswith("Polar-ViT") and " % " in line for line in said)


def test_fresh_begins_anew_and_ctrl_c_is_told(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted(7)

    monkeypatch.setattr("polarvit.experiments.demo.train", interrupted)
    shutil.copytree(demo, tmp_path / "demo")
    result = CliRunner().invoke(app, ["demo", "--fresh", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 130
    assert "saved at step 7" in result.output
    assert not (tmp_path / "demo" / "digits").exists()
    assert (tmp_path / "demo" / "digits_vit").exists()


def test_the_report_command_takes_any_run(tmp_path: Path) -> None:
    train(tiny_recipe("train.steps=2", "data.validation=null"), tmp_path / "run", device="cpu", quiet=True)
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(out), "--title", HOSTILE])
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "Confusion" not in text  # there was nothing to test on
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no finished run" in result.output


@pytest.mark.parametrize(
    ("changes", "evaluated", "images", "count"),
    [
        (("data.holdout=0.1",), "train, 10% held out", "held-out", 143),
        (("data.train=test", "data.validation=train"), "train", "train", 1438),
    ],
)
def test_a_report_shows_and_names_the_images_of_its_scores(
    tmp_path: Path, changes: tuple[str, ...], evaluated: str, images: str, count: int
) -> None:
    train(tiny_recipe("train.steps=2", "watch.eval_every=1", *changes), tmp_path / "run", device="cpu", quiet=True)
    run = read_run(tmp_path / "run")
    assert run.seen is not None
    assert run.seen.of == run.metrics["scores"]["count"] == count
    right = run.seen.predicted == run.seen.labels
    assert 100 * right.mean() == pytest.approx(run.metrics["scores"]["top1"], abs=1e-3)
    text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<td>{evaluated}</td>" in text
    for name in (f"{images} loss", f"{images} accuracy", f"a {images} image (", "evaluated on"):
        assert name in text
    assert not re.search(r"\btest\b", re.sub(r"base64,[^\"]*", "", text))


def sample(count: int = 40, classes: int = 3, k: float | None = 1.0, names: tuple[str, ...] | None = None) -> Seen:
    draw = np.random.default_rng(0)
    labels = np.arange(count) % classes
    centres = draw.normal(size=(classes, 6)) * 2
    features = centres[labels] + 0.3 * draw.normal(size=(count, 6))
    logits = features @ centres.T
    odds = np.exp(logits - logits.max(1, keepdims=True))
    images = draw.integers(0, 255, (count, 8, 8, 3), dtype=np.uint8)
    known = names or tuple(f"class {i}" for i in range(classes))
    return Seen(known, labels, odds / odds.sum(1, keepdims=True), features, images, k, count)


def test_hostile_names_are_escaped_everywhere(demo: Path) -> None:
    seen = sample(names=(HOSTILE, HOSTILE + "2", "x<i>y"))
    run = dataclasses.replace(read_run(demo / "digits", look_at_images=False), name=HOSTILE, seen=seen)
    pieces = [page.table([run]), page.embedding(run), confusion(run), extremes(seen), radii(seen), page.colophon([run])]
    for piece in pieces:
        assert "<script" not in piece
        assert "<i>" not in piece


@pytest.mark.parametrize("classes", [1, 2, 17, 60])
def test_any_number_of_classes_can_be_drawn(classes: int, demo: Path) -> None:
    seen = sample(count=120, classes=classes)
    run = dataclasses.replace(read_run(demo / "digits", look_at_images=False), seen=seen)
    placed = place(seen, steps=4)
    assert disk(seen, placed).count("<circle") > 60
    assert "120 right" in confusion(run) or "of 120 right" in confusion(run)


def test_points_of_the_plane_keep_their_distances() -> None:
    """Points that lie in a plane already come back with their radii and distances."""
    seen = sample(count=30)
    flat = np.zeros_like(seen.features)
    flat[:, :2] = np.random.default_rng(1).normal(size=(30, 2))
    flat_seen = dataclasses.replace(seen, features=flat)
    own = place(flat_seen, steps=1).k  # the curvature the picture would have: at any other, no plane fits
    placed = place(dataclasses.replace(flat_seen, k=own), steps=300)
    assert placed.k == pytest.approx(own)
    assert placed.radius_error < 0.01
    assert placed.distance_error < 0.01


def test_coinciding_points_and_the_origin_can_be_placed() -> None:
    seen = sample(count=12)
    for features in (np.zeros_like(seen.features), np.ones_like(seen.features)):
        still = dataclasses.replace(seen, features=features)
        placed = place(still, steps=5)
        assert np.isfinite(placed.radius).all()
        assert "nan" not in disk(still, placed) + radii(still)


def test_a_run_without_scores_has_a_row(demo: Path) -> None:
    run = read_run(demo / "digits", look_at_images=False)
    bare = Run(run.name, run.recipe, run.log, {**run.metrics, "scores": None}, None)
    assert page.facts(bare)[1] == "–"


def test_rank_correlation_knows_order_and_ties() -> None:
    x = np.arange(10.0)
    assert rank_correlation(x, x**3) == pytest.approx(1)
    assert rank_correlation(x, -x) == pytest.approx(-1)
    assert rank_correlation(x, np.ones(10)) == 0
    assert rank_correlation(np.array([1.0, 1, 2, 3]), np.array([1.0, 1, 2, 3])) == pytest.approx(1)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 359), (0.11, 2.4), (-3, 3), (5, 5)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)


def test_a_report_leaves_the_threads_as_they_were(demo: Path) -> None:
    before = torch.get_num_threads()
    write_report([demo / "digits_vit"], demo / "one.html")
    assert torch.get_num_threads() == before
    assert "Poincar" not in (demo / "one.html").read_text(encoding="utf-8")
