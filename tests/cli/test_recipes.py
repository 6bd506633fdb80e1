"""`polarvit recipes list`, `show`, `copy`, `keys`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from commands import call, done, flat

from polarvit.training.recipe import load, shipped
from polarvit.training.settings import plain


def test_list_names_every_recipe() -> None:
    output = done("recipes", "list")
    assert all(name in output for name in shipped())
    assert "cub" not in done("recipes", "list", "--pattern", "digits*")


def test_show_prints_the_file_or_every_setting() -> None:
    assert done("recipes", "show", "digits_vit") == shipped()["digits_vit"].read_text()
    assert yaml.safe_load(done("recipes", "show", "digits_vit", "--full")) == plain(load("digits_vit"))


@pytest.mark.parametrize("flags", [[], ["--full"]], ids=["file", "full"])
def test_a_copy_is_the_same_recipe(tmp_path: Path, flags: list[str]) -> None:
    done("recipes", "copy", "cifar100_vit_tiny", tmp_path / "mine.yaml", *flags)
    assert load(tmp_path / "mine.yaml") == load("cifar100_vit_tiny")
    result = call("recipes", "copy", "digits", tmp_path / "mine.yaml")
    assert result.exit_code == 1
    assert "already exists" in result.stderr


def test_keys_explains_settings() -> None:
    output = done("recipes", "keys", "optim.*")
    assert "optim.warmup" in output
    assert "train.steps" not in output


def test_a_recipe_that_does_not_exist_is_a_wrong_command_line() -> None:
    result = call("recipes", "show", "digit")
    assert result.exit_code == 2
    assert "did you mean 'digits'?" in result.stderr


def test_a_pattern_that_nothing_matches_is_a_wrong_command_line() -> None:
    for words in (["keys", "optm.*"], ["list", "--pattern", "mnist*"]):
        result = call("recipes", *words)
        assert result.exit_code == 2
        assert "matches" in flat(result.stderr)
    assert "keys begin with title, model, data, augment, optim" in flat(call("recipes", "keys", "optm.*").stderr)
    result = call("recipes", "show", "zzz")
    assert result.exit_code == 2
    assert "`polarvit recipes list` names the shipped ones" in result.stderr
