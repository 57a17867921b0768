"""The PostgreSQL of a run: a primary that may be crashed, fail over to a standby, and run out of disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.chaos.recording import now_us
from tests.kit.directories import new_directory
from tests.kit.standby import Standby
from tests.storage.postgres.fallible import FallibleServer

TUNING = ("alter system set max_wal_size = '1GB'", "alter system set checkpoint_timeout = '2min'")
DISK = "12g"
SPARE_KB = 64
"""What is left of a full disk."""


class Cluster:
    """`front` is a directory that always leads to the socket of the current primary, whichever that is."""

    def __init__(self, binaries: str) -> None:
        self.directory = new_directory("tarry-chaos-")
        self.has_own_disk = _mounted(self.directory)
        self._homes = 0
        self.server = FallibleServer(self._new_home(), binaries)
        with psycopg.connect(self.server.dsn, autocommit=True) as conn:
            for setting in TUNING:
                conn.execute(setting)
            conn.execute("select pg_reload_conf()")
        self.front = self.directory / "front"
        self._lead()
        self.dsn = make_conninfo(self.server.dsn, host=str(self.front))

    @property
    def socket(self) -> str:
        """The path of the primary's socket, by way of the front."""
        return str(self.front / f".s.PGSQL.{conninfo_to_dict(self.server.dsn).get('port', 5432)}")

    def proxied_dsn(self, folder: Path) -> str:
        return make_conninfo(self.server.dsn, host=str(folder))

    def fail_over(self, load: Callable[[], None], *, synchronous: bool) -> int:
        """Promote a standby after the primary has stopped at once. `load` lets clients work for a while.

        Since when what was answered may be missing; a synchronous standby has everything.
        """
        standby = Standby(self.server.dsn, self._new_home(), f"standby{self._homes}")
        if synchronous:
            standby.require()
        standby.await_caught_up()
        load()
        begun = now_us()
        if not synchronous:
            standby.pause_receive()
            load()
        self.server.stop()
        standby.promote()
        old, self.server = self.server, standby
        self._lead()
        standby.await_ready()
        shutil.rmtree(old.home, ignore_errors=True)
        return begun

    def fill_disk(self, seconds: float) -> None:
        """For a while nothing can be written. A server that cannot write its log panics, and starts when it can again."""
        self._shrink_disk()
        try:
            time.sleep(seconds)
        finally:
            _remount(self.directory, DISK)
        try:
            self.server.await_ready(within_s=5)
        except AssertionError:
            with contextlib.suppress(Exception):  # its supervisor gave up while the disk was full
                self.server.close()
            self.server.start()
            self.server.await_ready()

    def _shrink_disk(self) -> None:
        """To what is used. The mount is refused when the server has written more than that meanwhile: then measure again."""
        for left in reversed(range(20)):
            try:
                _remount(self.directory, f"{-(-_used(self.directory) // 1024) + SPARE_KB}k")
                return
            except subprocess.CalledProcessError:
                if left == 0:
                    raise

    def close(self) -> None:
        try:
            self.server.close()
        finally:
            if self.has_own_disk:
                subprocess.run(["umount", "--lazy", str(self.directory)], check=False)
            shutil.rmtree(self.directory, ignore_errors=True)

    def _new_home(self) -> Path:
        self._homes += 1
        return self.directory / f"home{self._homes}"

    def _lead(self) -> None:
        new = self.directory / "front.new"
        new.symlink_to(str(conninfo_to_dict(self.server.dsn)["host"]))
        new.replace(self.front)


def _mounted(directory: Path) -> bool:
    """A disk of its own, in memory, which can be made full. Only root may; elsewhere the fault is left out."""
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0755", "tarry-chaos", str(directory)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _remount(directory: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(directory)], check=True)


def _used(directory: Path) -> int:
    disk = os.statvfs(directory)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


@contextmanager
def cluster(binaries: str = "18") -> Generator[Cluster]:
    made = Cluster(binaries)
    try:
        yield made
    finally:
        made.close()
