"""`schema.sql` is what the migrations add up to, on every version of PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tarry.storage.postgres import migrate
from tests.kit.servers import Servers
from tests.migrations.catalogue import described
from tests.migrations.conftest import NewDatabase

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "schema-snapshot"
SNAPSHOT = ROOT / "src" / "tarry" / "storage" / "postgres" / "schema.sql"
HOWTO = "a migration changed: run make schema, and commit schema.sql with it"


def migrated(dsn: str) -> psycopg.Connection[Any]:
    conn = psycopg.connect(dsn, autocommit=True)
    migrate.migrate(conn)
    return conn


@pytest.mark.parametrize("binaries", ["18", "16", "system"])
def test_a_database_made_from_the_snapshot_equals_a_migrated_one(
    servers: Servers, new_database: NewDatabase, binaries: str
) -> None:
    server = servers.get(binaries)
    with migrated(new_database(server)) as conn:
        by_migrations = described(conn)
    with psycopg.connect(new_database(server), autocommit=True) as conn:
        conn.execute(SNAPSHOT.read_text())  # pyright: ignore[reportArgumentType, reportCallIssue]
        by_snapshot = described(conn)
        assert migrate.migrate(conn) == [], HOWTO
    for topic, details in by_migrations.items():
        assert by_snapshot[topic] == details, f"{topic}: {HOWTO}"


@pytest.mark.parametrize("binaries", ["18", "16", "system"])
def test_the_snapshot_is_what_the_tool_writes_now(servers: Servers, new_database: NewDatabase, binaries: str) -> None:
    dsn = new_database(servers.get(binaries))
    migrated(dsn).close()
    written = subprocess.run([sys.executable, str(TOOL), dsn], capture_output=True, text=True, check=True).stdout
    assert written == SNAPSHOT.read_text(), HOWTO


def test_differences_are_seen(servers: Servers, new_database: NewDatabase) -> None:
    """The comparison itself: each of these small changes must show."""
    changes = (
        "alter table tarry.message set (fillfactor = 50)",
        "alter table tarry.message alter consumer set default 'x'",
        "alter table tarry.message alter consumer set storage external",
        "alter table tarry.message alter type set not null",
        "alter domain tarry.message_priority drop constraint message_priority_check",
        "alter table tarry.message rename last_error to error",
        "alter table tarry.dead_letter alter reason type varchar",
        "drop index tarry.message_order",
        "alter type tarry.event_kind add value 'odd' before 'offered'",
        "alter sequence tarry.version_seq increment 2",
        "create view tarry.odd as select 1",
        "create or replace function tarry.message_state(m tarry.message, now timestamptz) returns text language sql "
        "stable as 'select null::text'",
        "alter function tarry.message_state security definer",
        "grant select on tarry.message to public",
        "create table tarry.event_odd partition of tarry.event for values from ('2024-01-01') to ('2024-01-02')",
    )
    with migrated(new_database(servers.get("18"))) as conn:
        for change in changes:
            before = described(conn)
            conn.execute(change)
            assert described(conn) != before, change
