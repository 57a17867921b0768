"""Throughput while an open snapshot prevents vacuum."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
from psycopg import Connection

from benchmarks.bench import Bench, Turn, table
from benchmarks.contenders import TARRY_BARE
from benchmarks.contenders.protocol import Contender, Session
from benchmarks.scenarios.batches import consume_many
from benchmarks.scenarios.measures import HELD

BATCH = 100
_STATS = """
    select n_dead_tup, autovacuum_count, autoanalyze_count from pg_stat_user_tables where relid = %s::regclass
"""


def run(bench: Bench) -> None:
    plan = bench.plan
    with ExitStack() as stack:
        turns: list[tuple[str, Sequence[str], Turn]] = []
        holders: list[tuple[Contender, Connection[Any], tuple[int, int, int]]] = []
        for contender in bench.contenders:
            if contender.name == TARRY_BARE:  # with the journal on it has more to carry; once is enough
                continue
            dsn = bench.database(contender, "held")
            session = contender.open(dsn, durable=plan.durable)
            stack.callback(session.close)
            for _ in range(bench.plan.warm_up):
                _loop(bench, contender.name, session)
            holder = stack.enter_context(psycopg.connect(dsn))
            before = _stats(bench, dsn, contender)
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            # A snapshot holds back its own database only, so each contender has one of its own.
            holder.execute("select count(*) from pg_class")
            holders.append((contender, holder, before))
            turns.append((contender.name, (HELD,), _turn(bench, contender.name, session)))
        bench.rounds(f"held snapshot, {plan.held_s:g} s each", turns, plan.held_slices)
        for contender, holder, before in holders:
            dead, vacuums, analyzes = _stats(bench, bench.database(contender, "held"), contender)
            holder.rollback()
            bench.results.facts.setdefault("held", {})[contender.name] = {
                "seconds": plan.held_s,
                "dead_rows": dead,
                "autovacuums": vacuums - before[1],
                "autoanalyzes": analyzes - before[2],
            }


def _turn(bench: Bench, name: str, session: Session) -> Turn:
    seconds = bench.plan.held_s / bench.plan.held_slices

    def turn() -> None:
        n, until = 0, time.monotonic() + seconds
        with bench.meter.slice() as worked:
            while n == 0 or time.monotonic() < until:
                n += _loop(bench, name, session)
        bench.results.add(HELD, name, bench.meter.sample(worked, n))

    return turn


def _loop(bench: Bench, name: str, session: Session) -> int:
    session.offer_many(bench.bodies(BATCH))
    bench.results.note_lost(name, consume_many(session, BATCH, BATCH))
    return BATCH


def _stats(bench: Bench, dsn: str, contender: Contender) -> tuple[int, int, int]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = table(contender).as_string(conn)
        row = conn.execute(_STATS, [name]).fetchone()
    assert row is not None
    return row
