from __future__ import annotations

from pathlib import Path

import pytest

from graphbench.cli.misplaced import check_names, meant
from graphbench.errors import BadInput


@pytest.mark.parametrize("value", ["NCI", "my_package.MyData", "{class_path: NCI}", "spec.yaml"])
def test_names_mappings_and_files_of_settings_pass(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text("class_path: NCI\n")
    check_names(["--data", value, "--model.architecture", value])
    check_names([f"--data={value}"])


def test_a_file_is_no_name_though_it_reads_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`a.b` may be a module's class, unless there is a file of that name."""
    monkeypatch.chdir(tmp_path)
    check_names(["--data", "a.b"])
    Path("a.b").write_text("secret,content\n")
    with pytest.raises(BadInput, match=r"--data a\.b: this option takes the name of a benchmark") as refused:
        check_names(["--data", "a.b"])
    assert "secret" not in str(refused.value)


def test_settings_that_are_not_there_are_no_name() -> None:
    with pytest.raises(BadInput, match=r"no/spec\.yaml"):
        check_names(["--data.class_path", "no/spec.yaml"])


@pytest.mark.parametrize(
    ("option", "expected"),
    [("lr", "model.optimizer.lr"), ("num_epochs", "trainer.max_epochs"), ("dim", "data.dim"), ("nonsense", None)],
)
def test_options_of_other_programs_have_a_name_here(option: str, expected: str | None) -> None:
    assert meant(option, {"data": "Own"}, lambda slot: ["dim", "spec"]) == expected
