"""The script for sbatch, as bash understands it."""

import subprocess

import pytest

from graphbench.experiments.slurm import array_script, ranges


def test_bash_gets_every_word_as_it_was_given(tmp_path):
    here = tmp_path / "a folder"
    here.mkdir()
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/bash\npwd\nprintf "%s\\n" "$@"\nexit 7\n')
    tool.chmod(0o755)
    script = array_script(
        [str(tool), "--vary", "a=x y,$HOME", "it's"], "--only", range(12), tmp_path, here, notes=["`rm`; $(it's)"]
    )
    done = subprocess.run(
        ["bash", "-c", script], env={"SLURM_ARRAY_TASK_ID": "5", "HOME": "/nowhere"}, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [str(here), "--vary", "a=x y,$HOME", "it's", "--only", "5"]
    assert done.returncode == 7, "the task fails with its training"


def test_directives_stand_before_the_first_command(tmp_path):
    lines = array_script(
        ["x"], "--only", range(12), tmp_path / "o u t", tmp_path, notes=["one", "two"], directives=["--gpus=1"]
    ).splitlines()
    assert lines[:3] == ["#!/bin/bash", "# one", "# two"]
    first = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    directives = [line for line in lines[:first] if line.startswith("#SBATCH")]
    assert "#SBATCH --array=0-11" in directives
    assert f"#SBATCH --output='{tmp_path}/o u t/slurm-%a.log'" in directives
    assert {"#SBATCH --signal=B:USR1@90", "#SBATCH --requeue", "#SBATCH --gpus=1"} <= set(directives)
    assert not any(line.startswith("#SBATCH") for line in lines[first:])


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 9], "0-2,9"), ([1, 3, 5], "1,3,5")])
def test_ranges_of_an_array(numbers, text):
    assert ranges(numbers) == text
