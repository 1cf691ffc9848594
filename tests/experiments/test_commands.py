"""Commands of graphbench in separate processes: their logs, exit codes and signals."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from waits import wait_until

from graphbench.experiments import CommandFailed, commands, graphbench


def test_a_failing_command_says_how_to_go_on(capfd):
    graphbench("version")
    assert "graphbench" in capfd.readouterr().out
    with pytest.raises(SystemExit, match=r"graphbench test exited with 1\. Run the same command again"):
        graphbench("test", "--no-such-option")


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Replace Python by a script that prints its command; `wait` waits for SIGTERM and exits cleanly."""
    path = tmp_path / "tool"
    path.write_text(
        "#!/bin/bash\n"
        "echo $3 $PLACE; echo complaint >&2\n"
        'if [ "$3" = wait ]; then\n'
        f"  trap 'touch {tmp_path}/ended; exit 143' TERM; touch {tmp_path}/begun\n"
        "  for i in $(seq 600); do sleep 0.05; done\n"
        "fi\n"
        'exit "$4"\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(path))
    return tmp_path


def test_what_a_command_says_goes_to_the_end_of_its_log(tool):
    log = tool / "logs" / "a.log"
    graphbench("fit", "0", log=log, environment={"PLACE": "here"})
    with pytest.raises(CommandFailed) as failed:
        graphbench("test", "7", log=log)
    assert failed.value.returncode == 7
    assert log.read_text() == "fit here\ncomplaint\ntest\ncomplaint\n"


def test_a_signal_is_passed_on_and_the_command_waited_for(tool):
    class Stop(SystemExit):
        signum = signal.SIGTERM

    def stop(*_):
        raise Stop

    def send():
        wait_until((tool / "begun").exists)
        os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, stop)
    sender = threading.Thread(target=send, daemon=True)
    try:
        sender.start()
        with pytest.raises(Stop):
            graphbench("wait")
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert (tool / "ended").exists()
    assert not commands._running
