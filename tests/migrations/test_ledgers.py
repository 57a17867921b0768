"""Ledgers from before they had owners: each goes to the queue of its schedule, or of its last message."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tarry.storage.postgres import migrate

LEDGERS = next(one for one in migrate.known() if one.name.endswith("_pre_ledgers"))
SCHEDULE = """
    insert into tarry.schedule (prefix, hash, kind, text, queue, priority, misfire, catch_up_for, grace_for, overlap,
        jitter_for, in_advance_for, source, generation, revision, cursor_at, ruled_at, installed_at)
    values ('there', 'h', 'periodic', '60000ms', 'a', 0, 'once', '1d', '1m', 'allow', '0', '0', 'code', 1, 1,
        now(), now(), now())
"""
QUEUES = """
    insert into tarry.queue (name, lease_for, retry, journal, retention_for, target_lag_for, created_at, updated_at)
    select name, '30s', '{1, 2, 60, 0}', 'events', '1d', '1m', now(), now() from unnest('{a, b}'::text[]) name
"""
TICKS = """
    insert into tarry.tick (prefix, hash, tick, verdict, reason, decided_at, queue, key) values
    ('there', 'h', now(), 'planned', 'on_time', now(), (select id from tarry.queue where name = 'b'), 'k'),
    ('gone', 'h', now() - interval '1h', 'planned', 'on_time', now(), (select id from tarry.queue where name = 'a'), 'k'),
    ('gone', 'h', now(), 'planned', 'on_time', now(), (select id from tarry.queue where name = 'b'), 'k'),
    ('gone', 'h', now() + interval '1h', 'skipped', 'misfire', now(), null, null),
    ('skipped', 'h', now(), 'skipped', 'misfire', now(), null, null)
"""


def test_a_ledger_from_before_goes_to_its_queue(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = migrate.known()
    with psycopg.connect(bare, autocommit=True) as conn:
        monkeypatch.setattr(migrate, "known", lambda: tuple(one for one in everything if one.number < LEDGERS.number))
        migrate.migrate(conn)
        conn.execute(QUEUES)
        conn.execute(SCHEDULE)
        conn.execute(TICKS)
        conn.execute("insert into tarry.tick_forgotten values ('gone', 'h', now()), ('forgotten', 'h', now())")
        monkeypatch.setattr(migrate, "known", lambda: everything)
        migrate.migrate(conn)
        found: list[Any] = conn.execute("select prefix, name, queue from tarry.ledger order by prefix").fetchall()
        assert found == [
            ("forgotten", "forgotten", ""),
            ("gone", "gone", "b"),
            ("skipped", "skipped", ""),
            ("there", "there", "a"),
        ]
        assert conn.execute("select prefix, ledger from tarry.schedule").fetchall() == [("there", "there")]
