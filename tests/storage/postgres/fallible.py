"""A PostgreSQL of a test's own, which it may crash, stop and start."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg

from tarry.app import prepare
from tarry.storage.postgres.embedded import Embedded, EmbeddedSettings, start
from tarry.storage.postgres.embedded.supervisor.layout import Layout, read_state
from tests.kit.directories import new_directory
from tests.storage.postgres.embedded.embedded_kit import await_stopped

TIMEOUT_S = 60.0


class FallibleServer:
    def __init__(self, home: Path, binaries: str) -> None:
        self._settings = EmbeddedSettings(data_dir=home, binaries=binaries)
        self._server: Embedded = start(self._settings)
        self.home = self._server.data_dir
        self.dsn = self._server.dsn
        prepare(self.dsn, migrate=True, allow_unsafe=False)

    @property
    def version(self) -> str:
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute("show server_version").fetchone()
        assert row is not None
        return row[0].split()[0]

    @property
    def postmaster(self) -> int:
        return self._await_postmaster()

    def kill(self) -> None:
        """Kill -9 of the postmaster. Its supervisor starts it again, and it replays its log; this does not wait for that."""
        state = read_state(Layout(self.home))
        if state is not None:  # else it is starting already
            _kill(state.postmaster, os.fsencode(self.home))

    def kill_backend(self, pid: int) -> None:
        """Kill -9 of one session's process: the server takes that for a corrupted memory, and starts anew."""
        _kill(pid, b"postgres: ")

    def stop(self) -> None:
        """At once, as `pg_ctl stop -m immediate` does: nothing is written, no client is notified."""
        os.kill(self._await_postmaster(), signal.SIGQUIT)
        self._server.close()
        await_stopped(self.home)

    def start(self) -> None:
        self._server = start(self._settings)

    def restart(self) -> None:
        self.stop()
        self.start()

    def await_ready(self, within_s: float = TIMEOUT_S) -> None:
        """Until it takes connections and statements."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                with psycopg.connect(self.dsn, connect_timeout=5) as conn:
                    conn.execute("select 1")
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the server does not come back"
                time.sleep(0.02)
            else:
                return

    def _await_postmaster(self) -> int:
        """A server that was killed answers again a moment before its supervisor has written down its new number."""
        deadline = time.monotonic() + TIMEOUT_S
        while (state := read_state(Layout(self.home))) is None:
            assert time.monotonic() < deadline, "the supervisor does not report which postmaster it started"
            time.sleep(0.02)
        return state.postmaster

    def terminate(self, application: str = "tarry") -> int:
        """End every session of an application, and return how many there were."""
        query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = %s"
        with psycopg.connect(self.dsn, application_name="terminator") as conn:
            row = conn.execute(query, (application,)).fetchone()
        assert row is not None
        return row[0]

    def close(self) -> None:
        self._server.close()
        await_stopped(self.home)


def _kill(pid: int, command: bytes) -> None:
    """Only the expected process: the id of a process that has ended may belong to another one by now."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if command in Path(f"/proc/{pid}/cmdline").read_bytes():
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
    finally:
        os.close(process)


@cache
def _template(binaries: str) -> Path:
    """A migrated data directory of a server that was stopped: to copy it is much cheaper than to make another."""
    directory = new_directory("tarry-template-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    FallibleServer(directory / "home", binaries).close()
    return directory / "home"


@contextmanager
def fallible_server(binaries: str = "18") -> Generator[FallibleServer]:
    directory = new_directory("tarry-fall-")
    try:
        subprocess.run(["cp", "--archive", _template(binaries), directory / "home"], check=True)
        server = FallibleServer(directory / "home", binaries)
        try:
            yield server
        finally:
            server.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
