"""`polarvit reproduce` and `polarvit precision`: clear errors, exit codes a script can use."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call, flat

from polarvit.cli import reproduce as commands
from polarvit.experiments import EXPERIMENTS, Experiment, Settings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["precison"], "No such command 'precison'"),
        (["precision", "--bogus"], "No such option: --bogus"),
        (["precision", "--seed", "-1"], "greater than or equal to 0"),
        (["precision", "extra"], "unexpected extra argument"),
        (["reproduce"], "missing; one of"),
        (["reproduce", "precison"], "did you mean 'precision'?"),
        (["reproduce", "zzz"], "there are:"),
        (["reproduce", "expressivity", "--only", "polar"], "has no use for it; it takes --out, --quick and --seed"),
        (["reproduce", "cost", "--steps", "5"], "--steps: 'cost' has no use for it; it takes --only, --device"),
        (["reproduce", "trees", "--side-by-side", "2"], "Invalid value for --side-by-side"),
        (["reproduce", "corrections", "--seeds", "0,1"], "Invalid value for --seeds"),
        (["reproduce", "imagenet", "--only", "vit"], "no row 'vit'; there are imagenet_vit_tiny"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_why(words: list[str], message: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert message in flat(result.output + result.stderr)


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = call("precision", "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "is a file" in flat(result.output + result.stderr)


def test_list_names_every_experiment_and_what_it_reproduces() -> None:
    output = flat(call("reproduce", "--list").output)
    for experiment in EXPERIMENTS.values():
        assert experiment.name in output
        assert experiment.reproduces in output


def test_list_of_one_experiment_names_no_other() -> None:
    output = flat(call("reproduce", "ablation", "--list").output)
    assert "polarvit reproduce ablation" in output
    assert "polarvit reproduce position" not in output
    refused = call("reproduce", "ablatoin", "--list")
    assert refused.exit_code == 2
    assert "no experiment 'ablatoin'" in flat(refused.output + refused.stderr)


def test_list_says_where_records_would_be_if_there_are_none(tmp_path: Path) -> None:
    told = f"no such records in {tmp_path}"
    assert told in flat(call("reproduce", "trees", "--list", "--out", tmp_path).output)
    (tmp_path / "cost.json").write_text('{"summary": {"vit_tiny": "1 ms"}}')
    assert told in flat(call("reproduce", "trees", "--list", "--out", tmp_path).output), "other records do not count"
    assert told not in flat(call("reproduce", "cost", "--list", "--out", tmp_path).output)


def test_list_takes_no_rows(tmp_path: Path) -> None:
    result = call("reproduce", "trees", "--list", "--only", "polarvit_float32", "--out", tmp_path)
    assert result.exit_code == 2
    assert "--list shows whole tables" in flat(result.output)
    (tmp_path / "trees.json").write_text('{"summary": {}}')
    assert "no records" not in flat(call("reproduce", "trees", "--list", "--out", tmp_path).output)


@pytest.mark.parametrize(("failures", "code"), [([], 0), (["the sky is green"], 1)])
def test_an_experiment_whose_claims_fail_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], code: int
) -> None:
    seen: list[Settings] = []

    class Fake(Experiment):
        def run(self, settings: Settings) -> list[str]:
            seen.append(settings)
            return failures

    monkeypatch.setitem(commands.EXPERIMENTS, "fake", Fake("fake", "", "", "somewhere"))
    result = call("reproduce", "fake", "--quick", "--seed", 3, "--out", "elsewhere")
    assert result.exit_code == code
    assert seen == [Settings(Path("elsewhere"), quick=True, seed=3)]
    assert all(failure in result.output + result.stderr for failure in failures)
