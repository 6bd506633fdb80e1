"""The command line: help without torch, clear errors, exit codes a script can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polarvit import __version__
from polarvit.cli import app
from polarvit.cli import reproduce as commands
from polarvit.experiments import EXPERIMENTS, Experiment, Settings

runner = CliRunner()


def flat(text: str) -> str:
    """Output without the frames and line breaks of the terminal."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["reproduce", "--help"], ["--version"], ["reproduce", "--list"]])
def test_asking_does_not_import_torch(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from polarvit.cli import app\n"
        f"try:\n    app({words!r})\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'mpmath'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polarvit.cli", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"polarvit {__version__}")


def test_help_names_the_commands() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "precision" in result.output
    assert "reproduce" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["precison"], "No such command 'precison'"),
        (["precision", "--bogus"], "No such option: --bogus"),
        (["precision", "--seed", "-1"], "greater than or equal to 0"),
        (["precision", "extra"], "unexpected extra argument"),
        (["reproduce"], "missing; one of precision"),
        (["reproduce", "precison"], "did you mean 'precision'?"),
        (["reproduce", "zzz"], "there are: precision"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_why(words: list[str], message: str) -> None:
    result = runner.invoke(app, words)
    assert result.exit_code == 2
    assert message in flat(result.output + result.stderr)


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = runner.invoke(app, ["precision", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "is a file" in flat(result.output + result.stderr)


def test_list_names_every_experiment_and_what_it_reproduces() -> None:
    output = runner.invoke(app, ["reproduce", "--list"]).output
    for experiment in EXPERIMENTS.values():
        assert experiment.name in output
        assert experiment.reproduces in output


@pytest.mark.parametrize(("failures", "code"), [([], 0), (["the sky is green"], 1)])
def test_an_experiment_whose_claims_fail_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], code: int
) -> None:
    seen: list[Settings] = []

    class Fake(Experiment):
        def run(self, settings: Settings) -> list[str]:
            seen.append(settings)
            return failures

    monkeypatch.setitem(commands.EXPERIMENTS, "fake", Fake("fake", "", "", ""))
    result = runner.invoke(app, ["reproduce", "fake", "--quick", "--seed", "3", "--out", "elsewhere"])
    assert result.exit_code == code
    assert seen == [Settings(Path("elsewhere"), quick=True, seed=3)]
    assert all(failure in result.output + result.stderr for failure in failures)
