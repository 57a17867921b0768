"""tarry message: looking, dropping, settling by token, and the life of a key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import tarry
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.retry import Retry
from tarry.core.workers.model import WorkerReport
from tests.edges.conftest import Run


def held(app: App, key: str = "a") -> str:
    """A message in our hands; its token."""
    app.queue("orders").offer(key, 1)
    delivery = app.queue("orders").try_poll()
    assert delivery is not None
    return str(delivery.token)


def test_one_message_in_full(cli: Run, app: App) -> None:
    app.queue("orders").offer("order-17", {"id": 17}, type="mail", headers={"trace": "x1"}, after=timedelta(hours=2))
    ran = cli("message", "show", "orders", "order-17")
    assert ran.fields["state"] == "delayed"
    assert ran.fields["payload"] == '{"id":17}'
    assert ran.fields["header trace"] == "x1"
    assert ran.fields["attempt"] == "0 of unlimited"
    data = cli("message", "show", "orders", "order-17", "--json").data
    assert data["schema"] == "tarry.message/1"
    assert (data["payload"], data["headers"], data["lease_until"]) == ({"id": 17}, {"trace": "x1"}, None)


def test_a_leased_message_has_its_consumer_and_its_end(cli: Run, app: App) -> None:
    held(app)
    ran = cli("message", "show", "orders", "a")
    assert ran.fields["state"] == "leased"
    assert "lease until" in ran.fields
    assert cli("message", "show", "orders", "a", "--json").data["consumer"] == ran.fields["leased by"]


@pytest.mark.parametrize("command", ["show", "why", "drop", "timeline"])
def test_a_message_that_is_not_there_is_not_found(cli: Run, app: App, command: str) -> None:
    app.queues.create("orders")
    ran = cli("message", command, "orders", "absent", *(["--yes"] if command == "drop" else []))
    assert ran.code == 3
    assert "'absent'" in ran.err
    assert cli("message", command, "orders", "absent", "--json").error["exit_code"] in (2, 3)


@pytest.mark.parametrize("command", ["show", "why", "list", "timeline", "drop", "ack", "nack", "touch", "release"])
def test_an_unknown_queue_is_not_found_and_not_created(refusing: Run, command: str) -> None:
    arguments = {"list": [], "show": ["k"], "why": ["k"], "timeline": ["k"], "drop": ["k", "-y"]}.get(
        command, ["k", str(uuid4())]
    )
    ran = refusing("message", command, "typo", *arguments)
    assert ran.code == 3
    assert "there is no queue named 'typo'" in ran.err


def test_messages_are_listed_by_state(cli: Run, app: App) -> None:
    held(app, "held")
    app.queue("orders").offer("ready", 1)
    app.queue("orders").offer("delayed", 1, after=timedelta(hours=1))
    for state in ("delayed", "ready", "leased"):
        (message,) = cli("message", "list", "orders", "--state", state, "--json").data["messages"]
        assert message["state"] == state
    table = cli("message", "list", "orders").out.splitlines()
    assert [line.split()[0] for line in table] == ["key", "held", "ready", "delayed"]
    assert [line["schema"] for line in cli("message", "list", "orders", "-o", "jsonl").lines] == ["tarry.message/1"] * 3
    assert cli("message", "list", "orders", "--state", "dead").code == 2
    assert cli("message", "list", "orders", "--limit", "0").code == 2


def test_a_truncated_list_is_marked(cli: Run, app: App) -> None:
    for n in range(3):
        app.queue("orders").offer(str(n), n)
    ran = cli("message", "list", "orders", "--limit", "2")
    assert len(ran.out.splitlines()) == 3
    assert "there may be more" in ran.err
    assert "no message matches" in cli("message", "list", "orders", "--state", "delayed").err


def test_a_long_payload_is_cut_in_a_list_and_whole_in_full(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", "x" * 500)
    assert "x" * 100 not in cli("message", "list", "orders").out
    assert "x" * 500 in cli("message", "show", "orders", "a").out


def test_a_drop_needs_confirmation(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    ran = cli("message", "drop", "orders", "a")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert app.queue("orders").contains("a")
    assert cli("message", "drop", "orders", "a", "--yes").fields["dropped"] == "yes"
    assert not app.queue("orders").contains("a")


def test_a_drop_takes_a_leased_message_unless_leased_ones_are_spared(cli: Run, app: App) -> None:
    queue = app.queue("orders")
    queue.offer("a", 1)
    queue.try_poll()
    refused = cli("message", "drop", "orders", "a", "--unless-leased", "--yes")
    assert (refused.code, "is leased" in refused.err) == (4, True)
    assert cli("message", "drop", "orders", "a", "--yes").code == 0
    assert queue.read("a") is None


def test_a_drop_of_another_version_is_a_conflict(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    message = app.queue("orders").read("a")
    assert message is not None
    stale = cli("message", "drop", "orders", "a", "--version", str(message.version + 1), "--yes", "--json")
    assert stale.code == 4
    assert str(message.version) in stale.error["error"]
    ran = cli("message", "drop", "orders", "a", "--version", str(message.version), "--yes", "--json")
    assert ran.data["schema"] == "tarry.message.drop/1"
    assert ran.data["version"] == message.version


def test_a_key_with_a_leading_dash_comes_after_two_dashes(cli: Run, app: App) -> None:
    app.queue("orders").offer("-17", 1)
    assert cli("message", "show", "orders", "--", "-17").fields["key"] == "-17"
    assert cli("message", "show", "orders", "-17").code == 2


@pytest.mark.parametrize(("verb", "done"), [("ack", "acked"), ("nack", "nacked"), ("release", "released")])
def test_a_token_settles_its_lease_once(cli: Run, app: App, verb: str, done: str) -> None:
    token = held(app)
    assert cli("message", verb, "orders", "a", token).fields["settled"] == done
    again = cli("message", verb, "orders", "a", token, "--json")
    assert again.code == (3 if verb == "ack" else 4)
    assert again.error["exit_code"] == again.code


@pytest.mark.parametrize("verb", ["ack", "nack", "touch", "release"])
def test_a_stale_token_is_a_conflict_and_changes_nothing(cli: Run, app: App, verb: str) -> None:
    held(app)
    ran = cli("message", verb, "orders", "a", str(uuid4()))
    assert ran.code == 4
    assert "nothing was changed" in ran.err
    assert app.queues.counts("orders").leased.n == 1
    assert cli("message", verb, "orders", "a", "not-a-token").code == 2


def test_a_settle_as_data(cli: Run, app: App) -> None:
    data = cli("message", "ack", "orders", "a", held(app), "--json").data
    assert data == {
        "schema": "tarry.message.settle/1",
        "queue": "orders",
        "key": "a",
        "settled": "done",
        "verb": "acked",
    }


def test_a_touch_prolongs_the_lease(cli: Run, app: App) -> None:
    token = held(app)
    assert cli("message", "touch", "orders", "a", token, "--lease-for", "10m").fields["settled"] == "touched"
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.lease_until is not None
    assert message.lease_until - app.store.run(app.store.queues.now()) > timedelta(minutes=9)
    assert cli("message", "touch", "orders", "a", token, "--lease-for", "0s").code == 2


def test_a_nack_has_a_retry_policy(cli: Run, app: App) -> None:
    app.queues.create("orders", tarry.QueueSettings(max_attempts=1))
    token = held(app)
    assert cli("message", "nack", "orders", "a", token, "--max-attempts", "3").code == 2
    retry = ("--retry-initial", "1h", "--retry-cap", "1h", "--max-attempts", "3")
    assert cli("message", "nack", "orders", "a", token, *retry).fields["settled"] == "nacked"
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.due_at - app.store.run(app.store.queues.now()) > timedelta(minutes=50)


def test_why_a_message_is_not_delivered(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1, after=timedelta(hours=1))
    app.queues.pause("orders", reason="stock-taking")
    shown = cli("message", "why", "orders", "a")
    assert "stock-taking" in shown.out
    assert "it is due in" in shown.out
    data = cli("message", "why", "orders", "a", "--json").data
    assert (data["schema"], data["deliverable"], data["deliverable_at"]) == ("tarry.message.why/1", False, None)
    assert len(data["reasons"]) == 2


def test_why_a_ready_message_waits_names_a_missing_worker(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    missing = "no running worker handles queue orders: start one"
    assert missing in cli("message", "why", "orders", "a").out
    about: dict[str, Any] = {"id": "w1", "consumer": "w", "host": "h", "pid": 1, "version": "1", "concurrency": 1}
    report = WorkerReport(**about, queues=("orders",), at=datetime.now(UTC))
    app.store.run(app.store.workers.report(report))
    assert missing not in cli("message", "why", "orders", "a").out


def test_a_nack_has_a_delay_and_an_error(cli: Run, app: App) -> None:
    token = held(app)
    cli("message", "nack", "orders", "a", token, "--after", "1h", "--error", "no answer")
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.last_error == "no answer"
    assert message.due_at - app.store.run(app.store.queues.now()) > timedelta(minutes=59)
    assert cli("message", "show", "orders", "a").fields["last error"] == "no answer"
    assert cli("message", "nack", "orders", "a", token, "--after", "11000d").code == 2


def test_a_buried_message_is_a_dead_letter_with_its_error(cli: Run, app: App) -> None:
    token = held(app)
    assert cli("message", "bury", "orders", "a", token, "--error", "no such customer").fields["settled"] == "buried"
    (dead,) = app.queue("orders").dead_letters.list()
    assert (dead.key, dead.reason, dead.error) == ("a", "buried", "no such customer")
    assert cli("message", "bury", "orders", "a", token).code == 3


def test_a_release_can_name_an_instant(cli: Run, app: App) -> None:
    token = held(app)
    assert cli("message", "release", "orders", "a", token, "--at", "2030-01-31T18:00:00Z").code == 0
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.due_at == datetime(2030, 1, 31, 18, tzinfo=UTC)


def test_the_timeline_of_a_key_is_in_order(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    app.queue("orders").offer("a", 2)
    delivery = app.queue("orders").try_poll()
    assert delivery is not None
    delivery.nack("boom\nwith a second line", after=timedelta(0))
    again = app.queue("orders").try_poll()
    assert again is not None
    again.ack()
    ran = cli("message", "timeline", "orders", "a")
    lines = ran.out.splitlines()[1:]
    kinds = ["offered", "updated", "leased", "nacked", "leased", "acked"]
    assert [next(word for word in line.split() if word in kinds) for line in lines] == kinds
    assert lines[1].split()[1].startswith("+")
    assert "boom" in lines[3]
    assert "second line" not in ran.out
    assert "no longer live" in ran.err
    data = cli("message", "timeline", "orders", "a", "--json").data
    assert data["schema"] == "tarry.event.list/1"
    assert [event["kind"] for event in data["events"]] == kinds
    assert data["live"] is None
    assert cli("message", "timeline", "orders", "a", "-o", "jsonl").lines[0]["schema"] == "tarry.event/1"
    assert len(cli("message", "timeline", "orders", "a", "--limit", "2").out.splitlines()) == 3


def test_a_timeline_ends_with_how_things_stand(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1, after=timedelta(hours=1))
    assert "delayed now" in cli("message", "timeline", "orders", "a").err
    held(app, "b")
    assert "leased now" in cli("message", "timeline", "orders", "b").err


def test_without_a_journal_there_is_no_timeline_but_a_reason(cli: Run, app: App) -> None:
    app.queues.create("quiet", tarry.QueueSettings(journal=JournalLevel.OFF))
    app.queue("quiet").offer("a", 1)
    ran = cli("message", "timeline", "quiet", "a")
    assert (ran.code, ran.out) == (0, "")
    assert "journal of this queue is off" in ran.err
    gone = cli("message", "timeline", "quiet", "b")
    assert gone.code == 3
    assert "--journal events" in gone.err


class TestEdit:
    def test_what_is_named_changes(self, cli: Run, app: App) -> None:
        app.queue("orders").offer("a", {"n": 1}, type="mail")
        ran = cli("message", "edit", "orders", "a", "--payload", '{"n": 2}', "--priority", "9", "--type", "", "--json")
        assert (ran.data["schema"], ran.data["outcome"]) == ("tarry.message.edit/1", "updated")
        message = app.queue("orders").read("a")
        assert message is not None
        assert (message.payload, message.priority, message.type) == ({"n": 2}, 9, None)
        assert cli("message", "edit", "orders", "a", "--priority", "9").fields["outcome"] == "ignored"
        timeline = cli("message", "timeline", "orders", "a")
        assert "changed payload, priority, type" in timeline.out

    def test_a_change_of_a_leased_message_must_be_forced(self, cli: Run, app: App) -> None:
        token = held(app)
        refused = cli("message", "edit", "orders", "a", "--after", "1h")
        assert (refused.code, "--force" in refused.err) == (4, True)
        assert cli("message", "edit", "orders", "a", "--after", "1h", "--force").code == 0
        assert cli("message", "ack", "orders", "a", token).code == 4

    def test_a_lease_and_a_retry_policy_of_its_own_come_and_go(self, cli: Run, app: App) -> None:
        app.queue("orders").offer("a", 1)

        def edited(*options: str) -> tuple[timedelta | None, Retry | None]:
            assert cli("message", "edit", "orders", "a", *options).fields["outcome"] == "updated"
            message = app.queue("orders").read("a")
            assert message is not None
            return message.lease_for, message.retry

        policy = Retry(cap_for=timedelta(hours=1))
        assert edited("--lease-for", "5m", "--retry-cap", "1h") == (timedelta(minutes=5), policy)
        assert edited("--lease-for", "none") == (None, policy)
        assert edited("--queue-retry") == (None, None)
        assert cli("message", "edit", "orders", "a", "--queue-retry", "--retry-cap", "1h").code == 2

    def test_what_cannot_be_edited(self, cli: Run, app: App) -> None:
        app.queue("orders").offer("a", 1)
        assert cli("message", "edit", "orders", "a").code == 2
        assert cli("message", "edit", "orders", "a", "--text").code == 2
        assert cli("message", "edit", "orders", "absent", "--priority", "1").code == 3
        assert cli("message", "edit", "orders", "a", "--priority", "1", "--version", "999999").code == 4
