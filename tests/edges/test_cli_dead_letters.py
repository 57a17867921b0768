"""tarry dlq: what failed for good, and what becomes of it."""

from __future__ import annotations

import pytest

import tarry
from tarry.app import App
from tests.edges.conftest import Run


def bury(app: App, *keys: str) -> list[int]:
    """Dead letters of these keys; their versions."""
    app.queues.create("orders", tarry.QueueSettings(max_attempts=1), exist_ok=True)
    versions: list[int] = []
    for key in keys:
        app.queue("orders").offer(key, {"k": key})
        delivery = app.queue("orders").try_poll()
        assert delivery is not None
        delivery.nack(f"broken {key}\nsecond line")
        versions.append(delivery.version)
    return versions


def test_dead_letters_are_listed_the_newest_first(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    ran = cli("dlq", "list", "orders")
    header, newest, oldest = ran.out.splitlines()
    assert header.split() == ["version", "key", "died", "attempt", "reason", "error"]
    assert newest.endswith("broken b")
    assert oldest.endswith("broken a")
    data = cli("dlq", "list", "orders", "--json").data
    assert data["schema"] == "tarry.dead_letter.list/1"
    assert [dead["key"] for dead in data["dead_letters"]] == ["b", "a"]
    assert data["dead_letters"][0]["error"] == "broken b\nsecond line"
    (line,) = cli("dlq", "list", "orders", "--limit", "1", "-o", "jsonl").lines
    assert line["schema"] == "tarry.dead_letter/1"


def test_no_dead_letters_is_good_news(cli: Run, app: App) -> None:
    app.queues.create("orders")
    ran = cli("dlq", "list", "orders")
    assert (ran.code, ran.out) == (0, "")
    assert "no dead letters" in ran.err
    assert cli("dlq", "redrive", "orders").fields["redriven"] == "0"
    assert cli("dlq", "purge", "orders").fields["purged"] == "0"


@pytest.mark.parametrize("command", ["list", "redrive", "purge"])
def test_an_unknown_queue_is_not_found_and_not_created(refusing: Run, command: str) -> None:
    ran = refusing("dlq", command, "typo", "--json")
    assert ran.code == 3
    assert ran.error["exit_code"] == 3


def test_a_redrive_asks_first_and_a_dry_run_does_nothing(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    assert cli("dlq", "redrive", "orders").code == 2
    plan = cli("dlq", "redrive", "orders", "--dry-run", "--limit", "1")
    assert plan.code == 0
    assert plan.out.splitlines()[1].split()[1] == "a"
    assert "nothing was done" in plan.err
    data = cli("dlq", "redrive", "orders", "-n", "--json").data
    assert data["dry_run"] is True
    assert [dead["key"] for dead in data["dead_letters"]] == ["a", "b"]
    assert app.queues.counts("orders").dead.n == 2


def test_the_oldest_are_redriven_up_to_the_limit(cli: Run, app: App) -> None:
    bury(app, "a", "b", "c")
    ran = cli("dlq", "redrive", "orders", "--limit", "2", "--yes")
    assert ran.code == 0
    assert (ran.fields["redriven"], ran.fields["still dead"]) == ("2", "1")
    assert app.queue("orders").contains("a")
    assert not app.queue("orders").contains("c")


def test_named_versions_are_redriven(cli: Run, app: App) -> None:
    _, second, third = bury(app, "a", "b", "c")
    ran = cli("dlq", "redrive", "orders", "--version", str(second), "--version", str(third), "--yes", "--json")
    assert ran.code == 0
    assert ran.data["schema"] == "tarry.dlq.redrive/1"
    assert (ran.data["redriven"], ran.data["still_dead"]["n"]) == (2, 1)
    assert not app.queue("orders").contains("a")


def test_versions_that_are_not_there_are_told(cli: Run, app: App) -> None:
    (version,) = bury(app, "a")
    absent = cli("dlq", "redrive", "orders", "--version", "999999", "--yes")
    assert absent.code == 3
    some = cli("dlq", "redrive", "orders", "--version", str(version), "--version", "999999", "--yes", "--json")
    assert some.code == 6
    assert (some.data["redriven"], some.data["not_found"]) == (1, 1)
    assert cli("dlq", "redrive", "orders", "--version", "999999", "--dry-run").code == 6
    assert cli("dlq", "redrive", "orders", "--version", "x", "--yes").code == 2


def test_a_dead_letter_whose_key_is_live_stays_dead(cli: Run, app: App) -> None:
    first, second = bury(app, "a", "b")
    app.queue("orders").offer("a", "again")
    some = cli("dlq", "redrive", "orders", "--version", str(first), "--version", str(second), "--yes", "--json")
    assert some.code == 6
    assert (some.data["redriven"], some.data["not_found"], some.data["still_dead"]["n"]) == (1, 0, 1)
    assert cli("dlq", "redrive", "orders", "--dry-run").out == ""
    none = cli("dlq", "redrive", "orders", "--yes")
    assert none.code == 4
    assert "live again" in none.err


def test_a_purge_of_dead_letters_asks_first(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    assert cli("dlq", "purge", "orders").code == 2
    assert app.queues.counts("orders").dead.n == 2
    ran = cli("dlq", "purge", "orders", "--yes", "--json")
    assert ran.data == {"schema": "tarry.dlq.purge/1", "queue": "orders", "purged": 2}
