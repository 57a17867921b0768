"""What operators see of a store: its leaders, and its database if it has one."""

from __future__ import annotations

from tarry.app import App
from tests.kit.backends import new_name, where_the_messages_are
from tests.kit.steps import MINUTE

pytestmark = where_the_messages_are


def test_a_leader_is_listed_with_its_fencing_token(app: App) -> None:
    name = new_name()
    held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert [leader for leader in app.store.run(app.store.maintenance.leaders()) if leader.name == name] == [held]


def test_a_former_leader_stays_listed_until_there_is_another(app: App) -> None:
    name = new_name()
    held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert held is not None
    app.store.run(app.store.maintenance.resign(held))
    (last,) = [leader for leader in app.store.run(app.store.maintenance.leaders()) if leader.name == name]
    assert (last.holder, last.lease_until < held.lease_until) == ("alice", True)


def test_a_database_shows_its_tables_and_the_partitions_of_its_journal(app: App) -> None:
    status = app.store.run(app.store.maintenance.database())
    if status is None:
        assert app.dsn is None, "only a store without a database has no status"
        return
    assert {"message", "queue", "dead_letter"} <= {table.name for table in status.tables}
    assert "event" not in {table.name for table in status.tables}
    assert all(table.dead_share <= 1 for table in status.tables)
    assert status.partitions[0].day is None, "the overflow comes first"
    days = [partition.day for partition in status.partitions if partition.day is not None]
    assert days == sorted(days, reverse=True)
    assert 0 < status.connections <= status.most_connections
    assert status.bytes > 0
