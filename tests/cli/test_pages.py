"""The pages on training tell the truth: their commands exist and run, their tables are those of the code."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import done
from typer.main import get_command

from polarvit.cli import app
from polarvit.training.recipe import load, shipped

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("training", "segmentation", "resuming", "distributed", "recipes", "cli", "benchmarks", "cifar100")
TOY = shlex.split(
    "--set train.steps=1 --set train.batch_size=4 --set optim.warmup=0 --device cpu "
    "--set model.options='{img_size: 64, patch_size: 32, depth: 1, dim: 16, mlp_dim: 16, heads: 2}'"
)


def commands(page: str) -> list[list[str]]:
    """The words after `polarvit` of every command line in the shell blocks of a page."""
    text = (DOCS / f"{page}.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert lines
    return [shlex.split(re.split(r"(?:^|-m )polarvit ", line)[1], comments=True) for line in lines]


@pytest.mark.parametrize(("page", "words"), [(page, words) for page in PAGES for words in commands(page)])
def test_commands_and_options_exist(page: str, words: list[str]) -> None:
    command: Any = get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in rest if word.startswith("--")} <= known


def test_the_five_minutes_can_be_walked(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(photos / "red", tmp_path / "photos" / "cats")
    shutil.copy(photos / "red" / "0.png", tmp_path / "photos" / "cats" / "001.jpg")
    monkeypatch.chdir(tmp_path)
    walked = [words for words in commands("training") if words[0] != "export"]  # exported in test_use
    for words in walked:
        done(*words, *(TOY if words[0] in ("train", "finetune") else []))
    assert [words[0] for words in walked] == ["data", "train", "eval", "predict", "train", "finetune"]


def test_the_recipes_of_the_page_load(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "recipes.md").read_text(), re.DOTALL)
    for block in blocks:
        (tmp_path / "page.yaml").write_text(block)
        assert load(tmp_path / "page.yaml").title == yaml.safe_load(block)["title"]
    assert len(blocks) == 2


def test_the_page_names_every_shipped_recipe() -> None:
    patterns = re.findall(r"`(\w+\*?)`", (DOCS / "recipes.md").read_text())
    for name in shipped():
        assert any(name == p or (p.endswith("_*") and name.startswith(p[:-1])) for p in patterns), name


def test_the_table_of_keys_is_current() -> None:
    spec = importlib.util.spec_from_file_location("recipe_table", DOCS / "recipe_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (DOCS / "recipes.md").read_text()
    assert text == module.page(text), "run: python docs/recipe_table.py"


def test_the_page_of_commands_names_them_all() -> None:
    text = (DOCS / "cli.md").read_text()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for path in [f"{name} {inner}" for inner in getattr(command, "commands", {})] or [name]:
            assert f"`polarvit {path}" in text, path
