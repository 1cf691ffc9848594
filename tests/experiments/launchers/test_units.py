"""Units within a job: their order, notes and logs, and how a warning or the job's end stops the running one."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from waits import wait_until

from graphbench.experiments.launchers import Bundle, Unit
from graphbench.experiments.launchers import units as module
from graphbench.experiments.launchers.units import read_notes


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Replace Python by a script: `wait` waits for SIGTERM and exits cleanly, other words are exit codes."""
    path = tmp_path / "tool"
    path.write_text(
        "#!/bin/bash\n"
        "echo $3 in $PWD with rank ${SLURM_PROCID:-none}\n"
        'if [ "$3" = wait ]; then\n'
        f"  trap 'echo saved; exit 143' TERM; touch {tmp_path}/begun\n"
        "  for i in $(seq 600); do sleep 0.05; done\n"
        "fi\n"
        'exit "$3"\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(path))
    monkeypatch.setenv("SLURM_PROCID", "0")
    return tmp_path


def unit(folder, name, *words):
    return Unit(name, words, folder / f"{name}.log")


def test_one_after_the_other_and_a_failure_does_not_stop_the_rest(tool):
    units = [unit(tool, "first", "0"), unit(tool, "second", "3"), unit(tool, "th.ird", "0")]
    assert Bundle(units, tool)() == ["second"]
    assert [read_notes(one.record)["code"] for one in units] == [0, 3, 0]
    assert units[2].log.read_text() == f"0 in {tool} with rank none\n"
    assert Bundle(units, tool)() == ["second"], "a restarted job runs only what failed"
    assert len(units[1].log.read_text().splitlines()) == 2
    assert len(units[2].log.read_text().splitlines()) == 1


def when_begun(folder, signum):
    """Send a signal to this process once the command runs."""

    def send():
        wait_until((folder / "begun").exists)
        os.kill(os.getpid(), signum)

    threading.Thread(target=send, daemon=True).start()


def test_a_warning_stops_the_running_unit_in_good_order_and_keeps_all_for_the_next_start(tool):
    units = [unit(tool, "done", "0"), unit(tool, "long", "wait"), unit(tool, "later", "0")]
    bundle, again = Bundle(units, tool), []

    def warned(*_):  # like submitit's handler, it runs within the call
        again.append(bundle.checkpoint())
        raise SystemExit(255)

    before = signal.signal(signal.SIGUSR2, warned)
    try:
        when_begun(tool, signal.SIGUSR2)
        with pytest.raises(SystemExit):
            bundle()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert units[1].log.read_text().splitlines()[-1] == "saved"
    assert not units[2].log.exists()
    (tool / "tool").write_text("#!/bin/bash\nexit 0\n")
    assert again[0].result() == []
    assert [read_notes(one.record)["code"] for one in units] == [0, 0, 0]
    assert len(units[0].log.read_text().splitlines()) == 1, "a finished unit is not run again"


def test_the_end_of_a_job_stops_the_unit_and_starts_no_other(tool):
    units = [unit(tool, "long", "wait"), unit(tool, "later", "0")]
    before = signal.getsignal(signal.SIGTERM)
    when_begun(tool, signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        Bundle(units, tool)()
    assert ended.value.code == 143
    assert units[0].log.read_text().splitlines()[-1] == "saved"
    assert not units[1].log.exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_unit_that_the_cluster_stops_itself_ends_the_job(tool):
    (tool / "tool").write_text("#!/bin/bash\nexit 143\n")
    units = [unit(tool, "told", "0"), unit(tool, "later", "0")]
    with pytest.raises(SystemExit):
        Bundle(units, tool)()
    assert not units[1].log.exists()


def test_the_command_does_not_get_the_warnings_of_its_job(tool):
    (tool / "tool").write_text("#!/bin/bash\nkill -USR1 $$; kill -USR2 $$; exit 0\n")
    assert Bundle([unit(tool, "told", "0")], tool)() == []


def test_a_running_unit_gives_signs_of_life(tool, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.05)
    (tool / "tool").write_text(f"#!/bin/bash\ntouch -d '2 hours ago' {tool}/slow.json\nsleep 0.5\nexit 0\n")
    noted, slow = [], unit(tool, "slow", "0")
    monkeypatch.setattr(module, "note_end", lambda record, code: noted.append(time.time() - record.stat().st_mtime))
    Bundle([slow], tool)()
    assert noted[0] < 60
