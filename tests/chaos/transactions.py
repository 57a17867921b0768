"""Transactions of the caller (`conn=`): an offer, an ack with its effect; then a commit, a rollback or a killed session."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import psycopg

from tests.chaos import layout
from tests.chaos.recording import OK, REFUSED, UNKNOWN
from tests.chaos.workload import Task, awaited

EFFECTS = "create table if not exists public.chaos_effect (payload text not null)"
_INSERT = "insert into public.chaos_effect (payload) values (%s)"
_KILL = "select pg_terminate_backend(%s)"


_numbers = count(1)
"""Of this process: its tasks write into one file."""


class Transactions:
    """For one task. `connect` opens a connection of the caller's own, blocking or awaiting as the task's app does."""

    def __init__(self, task: Task, connect: Any) -> None:
        self._task = task
        self._connect = connect
        self._number = 0
        self._conn: Any = None

    async def run(self) -> None:
        try:
            await self._run()
        except psycopg.Error:
            await self._discard()

    async def _run(self) -> None:
        task, self._number = self._task, next(_numbers)
        if self._conn is None or self._conn.closed:
            self._conn = await awaited(self._connect())
        kind = layout.KINDS[task.chance.choice(["main", "register", "mortal"])]
        await task.offer(kind, conn=self._conn, transaction=self._number)
        done = await self._ack_with_effect() if task.held and task.chance.random() < 0.7 else True
        # Other work of the caller: readers of the journal meet open transactions, and other clients wait for its rows.
        await asyncio.sleep(task.chance.choice([0, 0.02, 0.1, 0.3]))
        ending = task.chance.choices(["commit", "rollback", "killed"], [70, 20, 10])[0]
        if ending == "killed":
            await self._kill()
        elif ending == "rollback" or not done or self._is_broken():
            await self._end("rollback")
        else:
            await self._end("commit")

    async def _ack_with_effect(self) -> bool:
        """False: the lease was lost, so the effect must not be committed either."""
        task = self._task
        held = task.held.pop(0)
        outcomes = await task.settle("ack", held.queue, [held.lease_id], conn=self._conn, transaction=self._number)
        if outcomes != ["done"]:
            return False
        effect = f"{held.payload}@{held.lease_id.key}"  # messages of schedules differ in their keys only
        number = task.recorder.begin("effect", held.queue, effect, transaction=self._number)
        await awaited(self._conn.execute(_INSERT, [effect]))
        task.recorder.end(number, OK)
        return True

    def _is_broken(self) -> bool:
        """A COMMIT after an error would be a rollback that looks like a commit."""
        return self._conn.info.transaction_status is not psycopg.pq.TransactionStatus.INTRANS

    async def _end(self, how: str) -> None:
        number = self._task.recorder.begin(how, "", transaction=self._number)
        try:
            await awaited(self._conn.commit() if how == "commit" else self._conn.rollback())
        except psycopg.Error as error:
            # Deferred constraints apart, a server that answers an error to COMMIT has rolled back; a lost one may not.
            self._task.recorder.end(number, UNKNOWN if self._conn.broken else REFUSED, str(error))
            await self._discard()
        else:
            self._task.recorder.end(number, OK)

    async def _kill(self) -> None:
        """The session ends in the middle of the transaction."""
        pid = self._conn.info.backend_pid
        other = await awaited(self._connect())
        try:
            await awaited(other.execute(_KILL, [pid]))
        finally:
            await awaited(other.close())
            await self._discard()

    async def _discard(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await awaited(conn.close())
