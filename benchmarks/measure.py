"""What a slice of work cost: wall time, our CPU, the server's CPU, WAL and commits.

Commits are counted by the transaction ids that were given out: exact at once, while `pg_stat_database` may lag behind by
ten seconds. A transaction that wrote nothing has no id and is not counted.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import Connection

from benchmarks.results import Sample

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK = """
    select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        coalesce(array_agg(pid) filter (where backend_type = 'client backend' and pid <> pg_backend_pid()), '{}'),
        coalesce(array_agg(pid) filter (where backend_type <> 'client backend'), '{}')
    from pg_stat_activity
"""


@dataclass(slots=True)
class ServerReading:
    wal: int
    xids: int
    backends: dict[int, float] = field(default_factory=dict)
    others: dict[int, float] = field(default_factory=dict)
    reaped_s: float = 0.0
    """CPU of the server's processes that have ended."""


class Slice:
    """One piece of measured work; `sample` once it has ended."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.client_s = 0.0
        self.server: tuple[ServerReading, ServerReading] | None = None

    def sample(
        self,
        n: int,
        *,
        wall_s: float | None = None,
        elsewhere_s: float = 0.0,
        spawned: bool = False,
        seen: bool = True,
        less: Sample | None = None,
    ) -> Sample:
        """`elsewhere_s`: client CPU of processes that still run. `spawned`: the backends came and went with the slice.
        `less`: what the same costs without the work, to be taken off the CPU."""
        assert self.server is not None
        before, after = self.server
        backend = sum(cpu - before.backends.get(pid, 0.0) for pid, cpu in after.backends.items())
        background = sum(cpu - before.others.get(pid, 0.0) for pid, cpu in after.others.items())
        known = {**before.backends, **before.others}
        gone = sum(cpu for pid, cpu in known.items() if pid not in after.backends and pid not in after.others)
        ended = after.reaped_s - before.reaped_s - gone
        if spawned:
            backend += ended
        else:
            background += ended
        client = self.client_s + elsewhere_s
        if less is not None:
            client, backend = max(0.0, client - less.client_s), max(0.0, backend - (less.backend_s or 0.0))
        return Sample(
            n=n,
            wall_s=wall_s or self.wall_s,
            client_s=client,
            backend_s=backend if seen else None,
            background_s=max(0.0, background) if seen else None,
            wal_bytes=after.wal - before.wal,
            commits=after.xids - before.xids,
        )


class Meter:
    """Reads the clocks around a slice. Its own connection is not counted."""

    def __init__(self, admin: Connection[Any]) -> None:
        self._admin = admin
        self._postmaster = _postmaster_of(admin.info.backend_pid)

    @property
    def sees_server(self) -> bool:
        """Whether the server's processes are ours to look at: on this machine, in this namespace."""
        return self._postmaster is not None

    @contextmanager
    def slice(self) -> Generator[Slice]:
        measured = Slice()
        before = self._look()
        client, wall = client_cpu_s(), time.perf_counter()
        yield measured
        measured.wall_s = time.perf_counter() - wall
        measured.client_s = client_cpu_s() - client
        measured.server = (before, self._look())

    def sample(self, measured: Slice, n: int, **options: Any) -> Sample:
        return measured.sample(n, seen=self.sees_server, **options)

    def _look(self) -> ServerReading:
        row = self._admin.execute(_LOOK).fetchone()
        assert row is not None
        wal, xids, backends, others = row
        reading = ServerReading(int(wal), xids)
        if self._postmaster is not None:
            reading.backends = {pid: cpu for pid in backends if (cpu := _cpu_s(pid)) is not None}
            reading.others = {pid: cpu for pid in others if (cpu := _cpu_s(pid)) is not None}
            reading.others[self._postmaster] = _cpu_s(self._postmaster) or 0.0
            reading.reaped_s = _reaped_s(self._postmaster)
        return reading


def client_cpu_s() -> float:
    """This process and its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def process_cpu_s(pid: int) -> float:
    """Of a process that still runs, with its threads that have ended, as those of a worker that was stopped."""
    return time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid(3) returns for it


def _postmaster_of(backend: int) -> int | None:
    try:
        if not Path(f"/proc/{backend}/comm").read_text().startswith("postgres"):
            return None
        parent = int(_stat(backend)[1])
        return parent if _cpu_s(backend) is not None else None
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s(pid: int) -> float | None:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _reaped_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: 0 is the state, 1 the parent, 13 and 14 the CPU of ended children."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
