"""tarry queue: what it prints, what it refuses, and with which code it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import tarry
from tarry.app import App
from tests.edges.conftest import Run


def test_a_new_database_lists_no_queues_but_how_to_make_one(cli: Run) -> None:
    ran = cli("queue", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "tarry offer hello" in ran.err
    assert cli("queue", "list", "-o", "json").data == {"schema": "tarry.queue.list/1", "queues": []}
    assert cli("queue", "list", "-o", "jsonl").out == ""


def test_queues_are_listed_with_counts_and_settings(cli: Run, app: App) -> None:
    orders = app.queue("orders")
    orders.offer("now", 1)
    orders.offer("later", 1, after=timedelta(hours=1))
    orders.offer("held", 1, priority=9)
    assert orders.try_poll() is not None
    app.queues.create("mails", tarry.QueueSettings(max_attempts=5, lease_for=timedelta(minutes=2)))
    app.queues.pause("mails")
    header, mails, listed = cli("queue", "list").out.splitlines()
    assert header.split()[:6] == ["queue", "delayed", "ready", "leased", "dead", "state"]
    assert mails.split()[:8] == ["mails", "0", "0", "0", "0", "paused", "2m", "5"]
    assert listed.split()[:8] == ["orders", "1", "1", "1", "0", "running", "30s", "unlimited"]


def test_the_list_of_queues_as_data(cli: Run, app: App) -> None:
    app.queue("orders").offer("now", 1)
    data = cli("queue", "list", "--json").data
    assert data["schema"] == "tarry.queue.list/1"
    (queue,) = data["queues"]
    assert queue["name"] == "orders"
    assert queue["counts"]["ready"] == {"n": 1, "capped": False}
    assert queue["lease_for"] == 30
    (line,) = cli("queue", "list", "-o", "jsonl").lines
    assert line["schema"] == "tarry.queue/1"
    assert line["name"] == "orders"


def test_a_count_that_stopped_at_its_limit_is_marked(cli: Run, app: App) -> None:
    app.queue("long").offer_many([tarry.Message(payload=0, key=str(n)) for n in range(10_001)])
    assert cli("queue", "list").out.splitlines()[1].split()[2] == "10,000+"
    assert cli("queue", "show", "long", "--json").data["counts"]["ready"] == {"n": 10_000, "capped": True}


def test_how_long_the_oldest_has_been_due_is_shown_where_one_is(cli: Run, app: App) -> None:
    app.queue("orders").offer("late", 1, at=datetime.now(UTC) - timedelta(hours=2))
    assert "2h" in cli("queue", "show", "orders").fields["oldest is late by"]
    assert cli("queue", "show", "orders", "--json").data["counts"]["lag_for"] >= 7_200
    app.queue("orders").drop("late")
    assert "oldest is late by" not in cli("queue", "show", "orders").fields


def test_one_queue_in_full(cli: Run, app: App) -> None:
    app.queues.create("orders")
    app.queues.pause("orders", reason="moving house")
    ran = cli("queue", "show", "orders")
    assert ran.fields["state"] == "paused"
    assert ran.fields["paused because"] == "moving house"
    assert ran.fields["retention"] == "30d"
    data = cli("queue", "show", "orders", "-o", "json").data
    assert data["schema"] == "tarry.queue/1"
    assert data["paused_reason"] == "moving house"


@pytest.mark.parametrize("command", ["show", "edit", "rename", "pause", "resume", "purge", "delete"])
def test_an_unknown_queue_is_not_found_and_not_created(refusing: Run, command: str) -> None:
    more = {"edit": ["--lease-for", "1m"], "rename": ["other"], "purge": ["--confirm", "typo"], "delete": ["--yes"]}
    ran = refusing("queue", command, "typo", *more.get(command, []))
    assert ran.code == 3
    assert ran.out == ""
    assert ran.err.splitlines()[0] == "error: there is no queue named 'typo'"
    assert ran.err.splitlines()[1].startswith("hint: ")


def test_a_queue_is_created_with_the_settings_named(cli: Run, app: App) -> None:
    options = "--lease-for 2m --max-attempts 5 --retry-initial 10s --retry-factor 3 --retry-cap 1h --retry-jitter 0"
    more = "--journal payloads --retention 7d --target-lag PT5S"
    ran = cli("queue", "create", "mails", *options.split(), *more.split())
    assert ran.code == 0
    assert ran.fields["retry"] == "10s x3 up to 1h"
    settings = app.queues.get("mails").settings
    assert settings.lease_for == timedelta(minutes=2)
    assert settings.max_attempts == 5
    assert settings.retry.cap_for == timedelta(hours=1)
    assert settings.journal.value == "payloads"
    assert settings.retention_for == timedelta(days=7)
    assert settings.target_lag_for == timedelta(seconds=5)


def test_a_queue_that_exists_is_a_conflict_unless_that_is_fine(cli: Run) -> None:
    assert cli("queue", "create", "orders", "--json").data["name"] == "orders"
    again = cli("queue", "create", "orders", "--json")
    assert again.code == 4
    assert again.error["exit_code"] == 4
    assert "exists already" in again.error["error"]
    assert cli("queue", "create", "orders", "--exist-ok").code == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--lease-for", "13h"],
        ["--lease-for", "soon"],
        ["--max-attempts", "0"],
        ["--max-attempts", "many"],
        ["--retry-factor", "0.5"],
        ["--retry-jitter", "2"],
        ["--retry-cap", "11000d"],
        ["--journal", "everything"],
        ["--retention", "-1d"],
    ],
    ids=" ".join,
)
def test_a_setting_that_cannot_be_is_bad_input(refusing: Run, options: list[str]) -> None:
    assert refusing("queue", "create", "orders", *options).code == 2


def test_a_name_that_cannot_be_is_bad_input(refusing: Run) -> None:
    ran = refusing("queue", "create", "no spaces")
    assert ran.code == 2
    assert "A-Z a-z 0-9" in ran.err


def test_an_edit_changes_what_it_names_and_nothing_else(cli: Run, app: App) -> None:
    cli("queue", "create", "orders", "--max-attempts", "3", "--retry-factor", "4", "--lease-for", "1m")
    ran = cli("queue", "edit", "orders", "--max-attempts", "none", "--retry-cap", "30m", "--json")
    assert ran.data["max_attempts"] is None
    settings = app.queues.get("orders").settings
    assert (settings.retry.factor, settings.retry.cap_for) == (4, timedelta(minutes=30))
    assert settings.lease_for == timedelta(minutes=1)


def test_an_edit_of_nothing_is_refused(cli: Run) -> None:
    cli("queue", "create", "orders")
    ran = cli("queue", "edit", "orders")
    assert ran.code == 2
    assert "--lease-for" in ran.err


def test_a_queue_is_paused_and_resumed(cli: Run, app: App) -> None:
    cli("queue", "create", "orders")
    assert cli("queue", "pause", "orders", "--reason", "why not").fields["state"] == "paused"
    assert app.queues.get("orders").paused_reason == "why not"
    assert cli("queue", "resume", "orders", "-o", "jsonl").data["paused"] is False
    assert cli("queue", "resume", "orders").code == 0


def test_a_queue_gets_another_name_unless_it_is_taken(cli: Run) -> None:
    cli("queue", "create", "old")
    assert cli("queue", "rename", "old", "new").fields["queue"] == "new"
    cli("queue", "create", "old")
    ran = cli("queue", "rename", "old", "new")
    assert ran.code == 4
    assert cli("queue", "rename", "old", "no good").code == 2


def test_a_purge_needs_the_name_again(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    app.queue("orders").offer("b", 1, after=timedelta(hours=1))
    unasked = cli("queue", "purge", "orders")
    assert unasked.code == 2
    assert "--confirm orders" in unasked.err
    assert cli("queue", "purge", "orders", "--confirm", "order").code == 4
    assert app.queue("orders").contains("a")
    assert cli("queue", "purge", "orders", "--confirm", "orders").fields["purged"] == "2"
    again = cli("queue", "purge", "orders", "--confirm", "orders", "--json")
    assert again.data == {"schema": "tarry.queue.purge/1", "queue": "orders", "purged": 0}


def test_a_queue_with_messages_is_deleted_only_by_force(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    assert cli("queue", "delete", "orders").code == 2
    assert cli("queue", "delete", "orders", "--yes").code == 4
    assert app.queue("orders").contains("a")
    ran = cli("queue", "delete", "orders", "--yes", "--force", "--json")
    assert ran.data == {"schema": "tarry.queue.delete/1", "queue": "orders", "deleted": True}
    assert app.queues.list() == []


def test_an_empty_queue_is_deleted(cli: Run, app: App) -> None:
    app.queues.create("orders")
    assert cli("queue", "delete", "orders", "-y").fields["deleted"] == "yes"
