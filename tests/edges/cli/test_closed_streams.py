"""Programs that start a command with closed streams."""

from __future__ import annotations

import shlex
import subprocess
import sys

import tarry

TARRY = f"{shlex.quote(sys.executable)} -m tarry"


def run(command: str, dsn: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{TARRY} {command}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"TARRY_DSN": dsn},
    )


def test_no_message_is_leased_if_stdout_is_closed(database: str) -> None:
    with tarry.connect(database) as app:
        app.queue("q").offer("a", 1)
        done = run("poll q >&-", database)
        assert (done.returncode, done.stderr) == (
            2,
            "error: stdout is closed, so no result can be printed\nhint: redirect it: >/dev/null\n",
        )
        assert app.queues.counts("q").ready.n == 1


def test_a_command_works_if_stderr_is_closed(database: str) -> None:
    done = run("offer q 1 --key a 2>&-", database)
    assert done.returncode == 0, done.stdout
    done = run("queue show nothing 2>&-", database)
    assert (done.returncode, done.stdout) == (3, "")
