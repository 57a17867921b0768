"""What an administrator does at the command line is in the audit, as what is done through the broker is."""

from __future__ import annotations

from tarry.app import App
from tests.edges.conftest import Run


def rows(app: App) -> list[tuple[str, str | None, int | None]]:
    """The oldest first."""
    audits = list(reversed(app.store.run(app.store.security.audits())))
    assert {row.actor for row in audits} <= {"command line"}
    return [(row.action, row.queue, row.status) for row in audits]


def test_every_change_leaves_a_row_and_looking_leaves_none(cli: Run, app: App) -> None:
    cli("queue", "create", "orders")
    cli("queue", "list")
    cli("queue", "show", "orders")
    cli("queue", "pause", "orders", "--reason", "stock-taking")
    cli("dlq", "groups", "orders")
    cli("queue", "delete", "orders", "--yes")
    assert rows(app) == [
        ("tarry queue create", "orders", 200),
        ("tarry queue pause", "orders", 200),
        ("tarry queue delete", "orders", 200),
    ]
    assert app.store.run(app.store.security.audits())[1].detail == {"name": "orders", "reason": "stock-taking"}


def test_the_row_of_a_new_key_has_its_id(cli: Run, app: App) -> None:
    made = cli("key", "create", "shop", "--action", "read", "--json").data
    detail = app.store.run(app.store.security.audits())[0].detail
    assert detail is not None
    assert detail["created_key"] == made["id"]
    assert made["key"] not in str(detail)


def test_a_failed_command_has_an_audit_row_without_a_status(cli: Run, app: App) -> None:
    assert cli("queue", "pause", "nowhere").code != 0
    assert rows(app) == [("tarry queue pause", "nowhere", None)]


def test_what_cannot_be_text_is_refused_as_before(cli: Run, app: App) -> None:
    assert cli("queue", "create", "a\udcff").code == 2
    assert [status for *_, status in rows(app)] == [None]


def test_the_audit_is_listed_with_the_newest_first(cli: Run, app: App) -> None:
    cli("queue", "create", "orders")
    cli("queue", "pause", "orders")
    listed = cli("audit", "--json").data
    assert listed["schema"] == "tarry.audit.list/1"
    assert [row["action"] for row in listed["audit"]] == ["tarry queue pause", "tarry queue create"]
    newest = listed["audit"][0]["id"]
    (older,) = cli("audit", "--before", str(newest), "-o", "jsonl").lines
    assert (older["schema"], older["queue"], older["status"]) == ("tarry.audit/1", "orders", 200)
    assert "tarry queue pause" not in cli("audit", "--action", "create").out
    assert "no row matches" in cli("audit", "--actor", "absent").err
