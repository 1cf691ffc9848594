"""Commands whose output was closed by whoever started them, as `>&-` in a job file."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["list", "--version", "list configs"])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_commands_work_without_output(command, closed):
    shell = f"{sys.executable} -m graphbench {command} {closed}"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
