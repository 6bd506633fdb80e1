"""Help: every command has it, it needs no torch, and it is quick."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from commands import call
from typer.main import get_command

from polarvit import __version__
from polarvit.cli import app, main


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that call it."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, (*path, name))


COMMANDS = dict(walk(get_command(app)))
WANTED = {
    *(("train",), ("finetune",), ("eval",), ("predict",), ("models",), ("export",), ("precision",), ("reproduce",)),
    *(("data", "prepare"), ("data", "list"), ("recipes", "list"), ("recipes", "show"), ("recipes", "copy")),
}


def test_the_commands_of_the_manual_exist() -> None:
    assert set(COMMANDS) >= WANTED


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "polarvit")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_for_every_option(path: tuple[str, ...], flag: str) -> None:
    result = call(*path, flag)
    assert result.exit_code == 0
    assert "Usage: " in result.output
    for option in COMMANDS[path].params:
        assert option.help or option.name == "help", f"{' '.join(path)}: {option.name} has no help"


@pytest.mark.parametrize("path", sorted(WANTED - {("precision",), ("reproduce",)}), ids=" ".join)
def test_every_command_shows_an_example_of_itself(path: tuple[str, ...]) -> None:
    assert f"polarvit {' '.join(path)} " in call(*path, "--help").output.replace("\n", " ")


@pytest.mark.parametrize("words", [["--help"], ["train", "-h"], ["--version"], ["reproduce", "--list"]], ids=" ".join)
def test_asking_does_not_import_torch(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from polarvit.cli import app\n"
        f"try:\n    app({words!r})\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'mpmath', 'yaml', 'PIL', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["polarvit", "polarvit.cli"])
def test_the_module_runs_as_the_command_does(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"polarvit {__version__}")


@pytest.mark.parametrize(
    ("set_by_user", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
    ids=["nothing", "turns", "policy"],
)
def test_threads_wait_a_little_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, set_by_user: dict[str, str], expected: str | None
) -> None:
    """It must be said before torch is loaded, which no command has done when it starts."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # what is set inside is taken back at the end
        monkeypatch.delenv(name)
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    seen = []
    monkeypatch.setattr("polarvit.cli.app", lambda **_: seen.append(os.environ.get("GOMP_SPINCOUNT")))
    main()
    assert seen == [expected]
