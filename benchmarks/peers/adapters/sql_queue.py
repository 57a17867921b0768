"""pgmq and PgQue: queues made of SQL functions, called over psycopg. The SQL file is the user's: see `--pgmq`, `--pgque`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.peers.adapters.agent import Unsupported, Watch, body


class Adapter:
    def __init__(self, kind: str, sql_file: str) -> None:
        self._kind, self._sql_file = kind, sql_file

    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        if not create and self._kind == "pgque":
            raise Unsupported("consumers of one name receive the same batch: measured with one consumer")
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._lease_s = int(lease_s)
        if not create:
            return
        sql = "\n".join(line for line in Path(self._sql_file).read_text().splitlines() if not line.startswith("\\"))
        if self._kind == "pgmq":
            # The file is the body of an extension, and registers its tables with it.
            sql = sql.replace("@extschema@", "pgmq")
            self._conn.execute("create schema if not exists pgmq")
        self._conn.execute(sql.encode())
        if self._kind == "pgmq":
            self._conn.execute("select pgmq.create('bench')")
        else:
            self._conn.execute("select pgque.create_queue('bench'), pgque.register_consumer('bench', 'bench')")

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        if delay_s and self._kind == "pgque":
            raise Unsupported("delays are experimental in PgQue")
        while watch.goes_on:
            bodies = [body(i) for i in range(watch.n, watch.n + batch)]
            if self._kind == "pgmq" and batch == 1:
                self._conn.execute("select pgmq.send('bench', %s, %s)", [Jsonb(bodies[0]), int(delay_s)])
            elif self._kind == "pgmq":
                self._conn.execute(
                    "select pgmq.send_batch('bench', %s::jsonb[], %s)", [[Jsonb(each) for each in bodies], int(delay_s)]
                )
            elif batch == 1:
                self._conn.execute("select pgque.send('bench', %s::jsonb)", [Jsonb(bodies[0])])
            else:
                self._conn.execute(
                    "select pgque.send_batch('bench', 'default', %s::jsonb[])", [[Jsonb(each) for each in bodies]]
                )
            watch.step(batch)
        return watch.result()

    def consume(self, *, seconds: float, batch: int = 1, most: int | None = None) -> dict[str, Any]:
        if batch == 1 and self._kind == "pgque":
            raise Unsupported("it hands over batches only")
        watch = Watch(seconds, most)
        while watch.goes_on:
            n = self._pgmq(batch) if self._kind == "pgmq" else self._pgque()
            if not n:
                break
            watch.step(n)
        return watch.result()

    def _pgmq(self, batch: int) -> int:
        rows = self._conn.execute(
            "select msg_id, message from pgmq.read('bench', %s, %s)", [self._lease_s, batch]
        ).fetchall()
        if rows:
            self._conn.execute("select pgmq.delete('bench', %s::bigint[])", [[row[0] for row in rows]])
        return len(rows)

    def _pgque(self) -> int:
        """A batch is what came between two ticks: one by one does not exist."""
        self._conn.execute("select pgque.force_next_tick('bench')")
        self._conn.execute("select pgque.ticker('bench')")
        row = self._conn.execute("select pgque.next_batch('bench', 'bench')").fetchone()
        if row is None or row[0] is None:
            return 0
        events = self._conn.execute("select ev_data from pgque.get_batch_events(%s)", [row[0]]).fetchall()
        for (data,) in events:
            json.loads(data)
        self._conn.execute("select pgque.finish_batch(%s)", [row[0]])
        return len(events)

    def poll_only(self, *, n: int) -> dict[str, Any]:
        if self._kind == "pgque":
            raise Unsupported("it keeps no state per message")
        row = self._conn.execute("select count(*) from pgmq.read('bench', %s, %s)", [self._lease_s, n]).fetchone()
        return {"n": row[0] if row else 0}

    def close(self) -> None:
        self._conn.close()
