"""tarry offer and tarry poll: what goes in comes out, and nothing is lost on the way to the screen."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tarry.api._sync.leases import Leases
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.messages.model import LeaseId
from tarry.core.messages.outcomes import Settled
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
from tests.edges.conftest import Run


def test_a_message_is_sent_and_the_queue_made_on_the_way(cli: Run, app: App) -> None:
    ran = cli("offer", "orders", '{"id": 17}', "--key", "order-17")
    assert ran.code == 0
    assert ran.fields["key"] == "order-17"
    assert ran.fields["outcome"] == "created"
    assert "was created" in ran.err
    message = app.queue("orders").read("order-17")
    assert message is not None
    assert message.payload == {"id": 17}


def test_what_was_offered_as_data(cli: Run, app: App) -> None:
    data = cli("offer", "orders", "[1]", "--after", "1h", "--json").data
    message = app.queue("orders").read(data["key"])
    assert message is not None
    assert data["schema"] == "tarry.offer/1"
    assert data["outcome"] == "created"
    assert data["version"] == message.version
    assert datetime.fromisoformat(data["due_at"]) == message.due_at


def test_the_due_instant_is_printed_in_utc(cli: Run, app: App) -> None:
    ran = cli("offer", "orders", "1", "--key", "a", "--at", "2030-01-31T18:00:00+02:00")
    assert "due at 2030-01-31T16:00:00Z" in ran.err
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.due_at == datetime(2030, 1, 31, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    "when", [["--after", "90m"], ["--at", "+1h30m"], ["--after", "PT1H30M"], ["--after", "5400"]], ids=" ".join
)
def test_a_delay_counts_by_the_clock_of_the_database(cli: Run, app: App, when: list[str]) -> None:
    before = app.store.run(app.store.queues.now())
    cli("offer", "orders", "1", "--key", "a", *when)
    message = app.queue("orders").read("a")
    assert message is not None
    assert (
        before + timedelta(minutes=90)
        <= message.due_at
        <= app.store.run(app.store.queues.now()) + timedelta(minutes=90)
    )
    assert message.state is State.DELAYED


def test_a_time_in_the_past_is_due_at_once(cli: Run, app: App) -> None:
    assert cli("offer", "orders", "1", "--at", "2001-01-01T00:00:00Z").code == 0
    assert app.queue("orders").try_poll() is not None


@pytest.mark.parametrize(
    "options",
    [
        ["--after", "soon"],
        ["--after", "-5s"],
        ["--after", "11000d"],
        ["--at", "2030-01-31T18:00:00"],
        ["--at", "tomorrow"],
        ["--after", "1s", "--at", "+1s"],
        ["--priority", "10"],
        ["--priority", "high"],
        ["--header", "novalue"],
        ["--header", "=novalue"],
        ["--key", ""],
        ["--key", "k" * 201],
        ["--conflict", "explode"],
        ["--conflict", "debounce"],
        ["--max-wait", "1m"],
        ["--lease-for", "1ms"],
        ["--text", "--bytes"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_sent_is_bad_input_and_nothing_is_stored(refusing: Run, options: list[str]) -> None:
    ran = refusing("offer", "orders", "1", *options)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_a_payload_that_is_not_json_is_bad_input_with_a_hint_to_text(refusing: Run) -> None:
    ran = refusing("offer", "orders", "{id: 17}", "--json")
    assert ran.code == 2
    assert "--text" in ran.error["hint"]
    assert refusing("offer", "orders", "NaN").code == 2
    assert refusing("offer", "orders", "[" * 100 + "]" * 100).code == 2
    assert refusing("offer", "orders", "[" * 100_000).code == 2


def test_a_payload_is_stored_as_the_library_would_store_it(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", {"b": 1, "a": "é"}, at=datetime(2030, 1, 1, tzinfo=UTC))
    ran = cli("offer", "orders", '{"b":1,   "a": "\\u00e9"}', "--key", "a", "--at", "2030-01-01T00:00:00Z", "--json")
    assert ran.data["outcome"] == "ignored"


def test_a_json_string_stays_json_and_a_text_is_a_text(cli: Run, app: App) -> None:
    cli("offer", "orders", '"hi"', "--key", "json")
    cli("offer", "orders", "hi [there]", "--text", "--key", "text")
    cli("offer", "orders", "--key", "nothing")
    stored = app.queue("orders", bytes)
    payloads = {m.key: (m.payload, m.content_type) for key in ("json", "text", "nothing") if (m := stored.read(key))}
    assert payloads == {"json": (b'"hi"', None), "text": (b"hi [there]", "text/plain"), "nothing": (b"null", None)}


def test_a_payload_comes_from_stdin_or_a_file(cli: Run, app: App, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"from": "a file"}')
    cli("offer", "orders", "-", "--key", "stdin", stdin=b'{"from": "stdin"}')
    cli("offer", "orders", f"@{tmp_path}/order.json", "--key", "file")
    cli("offer", "orders", "-", "--bytes", "--key", "bytes", stdin=b"\x00\xff")
    orders: Queue[object] = app.queue("orders")
    payloads = [m.payload for key in ("stdin", "file", "bytes") if (m := orders.read(key))]
    assert payloads == [{"from": "stdin"}, {"from": "a file"}, b"\x00\xff"]
    missing = cli("offer", "orders", "@/no/such/file")
    assert missing.code == 2
    assert "/no/such/file" in missing.err
    assert cli("offer", "orders", "-", "--text", stdin=b"\xff").code == 2


def test_a_file_without_an_end_is_refused(refusing: Run) -> None:
    ran = refusing("offer", "orders", "@/dev/zero", "--bytes")
    assert ran.code == 2
    assert "more than 16,777,216 bytes" in ran.err


def test_conflict_rules_decide_about_a_live_key(cli: Run, app: App) -> None:
    def outcome(*options: str) -> str:
        return cli("offer", "orders", *options, "--key", "a", "--json").data["outcome"]

    assert outcome("1", "--after", "1h") == "created"
    assert outcome("2", "--after", "1h", "--conflict", "keep") == "ignored"
    assert outcome("3", "--after", "2h", "--conflict", "earliest") == "ignored"
    assert outcome("4", "--after", "30m", "--conflict", "earliest") == "updated"
    assert outcome("5") == "updated"


def test_debounce_postpones_a_live_key_up_to_its_longest_wait(cli: Run, app: App) -> None:
    debounce = ("--key", "a", "--after", "10m", "--conflict", "debounce", "--max-wait", "10m")
    first = cli("offer", "orders", "1", *debounce, "--json").data
    second = cli("offer", "orders", "2", *debounce, "--json").data
    assert (first["outcome"], second["outcome"]) == ("created", "updated")
    assert second["due_at"] == first["due_at"]
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.payload == 2


def test_a_message_has_a_lease_and_attempts_of_its_own(cli: Run, app: App) -> None:
    cli("offer", "orders", "1", "--key", "a", "--lease-for", "5m", "--max-attempts", "1")
    delivery = app.queue("orders").try_poll()
    assert delivery is not None
    assert round((delivery.lease_until - delivery.leased_at) / timedelta(seconds=1), 3) == 300  # the driver rounds
    delivery.nack("no")
    assert app.queues.counts("orders").dead.n == 1


def test_a_message_has_a_retry_policy_of_its_own(cli: Run, app: App) -> None:
    cli("offer", "orders", "1", "--key", "a", "--retry-initial", "1h", "--retry-factor", "3", "--retry-jitter", "0")
    message = app.queue("orders").read("a")
    assert message is not None
    assert message.retry == Retry(initial_for=timedelta(hours=1), factor=3, jitter=0)
    assert cli("offer", "orders", "1", "--retry-factor", "11").code == 2


def test_a_poll_has_attempts_and_an_order_of_its_own(cli: Run, app: App) -> None:
    queue = app.queue("orders")
    for priority in (0, 9):
        queue.offer(f"p{priority}", 1, priority=priority)
    (peeked,) = cli("poll", "orders", "--peek", "--lowest-first", "--json").data["messages"]
    (polled,) = cli("poll", "orders", "--lowest-first", "--no-ack", "--max-attempts", "1", "--json").data["messages"]
    assert (peeked["key"], polled["key"]) == ("p0", "p0")
    cli("message", "release", "orders", "p0", polled["token"])
    assert [message["key"] for message in cli("poll", "orders", "--max", "2", "--json").data["messages"]] == [
        "p9",
        "p0",
    ]
    assert cli("poll", "orders", "--max-attempts", "0").code == 2


def test_type_priority_and_headers_travel_along(cli: Run, app: App) -> None:
    cli("offer", "orders", "1", "--type", "mail", "--priority", "7", "--header", "a=1=2", "--header", "b=")
    (message,) = cli("poll", "orders", "--json").data["messages"]
    assert (message["type"], message["priority"], message["headers"]) == ("mail", 7, {"a": "1=2", "b": ""})


def test_a_received_message_is_printed_and_finished(cli: Run, app: App) -> None:
    app.queue("orders").offer("order-17", {"id": 17})
    header, row = cli("poll", "orders").out.splitlines()
    assert header.split() == ["key", "due", "priority", "attempt", "type", "payload"]
    assert row.startswith("order-17 ")
    assert row.endswith('{"id":17}')
    assert not app.queue("orders").contains("order-17")


def test_nothing_to_receive_is_an_empty_list_and_no_failure(cli: Run, app: App) -> None:
    app.queues.create("orders")
    ran = cli("poll", "orders")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing is due" in ran.err
    assert cli("poll", "orders", "-o", "json").data == {"schema": "tarry.delivery.list/1", "messages": []}
    assert cli("poll", "orders", "-o", "jsonl").out == ""


def test_at_most_so_many_are_received_in_order_of_delivery(cli: Run, app: App) -> None:
    for n in range(5):
        app.queue("orders").offer(f"k{n}", n, priority=n)
    lines = cli("poll", "orders", "--max", "3", "-o", "jsonl").lines
    assert [line["key"] for line in lines] == ["k4", "k3", "k2"]
    assert {line["schema"] for line in lines} == {"tarry.delivery/1"}
    assert "token" not in lines[0]
    assert app.queues.counts("orders").ready.n == 2


def test_receiving_waits_for_a_message_that_comes_due(cli: Run, app: App) -> None:
    app.queue("orders").offer("soon", 1, after=timedelta(milliseconds=300))
    (message,) = cli("poll", "orders", "--wait", "30s", "--json").data["messages"]
    assert message["key"] == "soon"


def test_only_messages_of_the_requested_type_come(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1, type="mail")
    app.queue("orders").offer("b", 1, type="fax")
    assert [m["key"] for m in cli("poll", "orders", "--type", "fax", "--max", "9", "--json").data["messages"]] == ["b"]
    assert [m["key"] for m in cli("poll", "orders", "--type", "mail", "--peek", "--json").data["messages"]] == ["a"]


def test_peeking_takes_nothing(cli: Run, app: App) -> None:
    app.queue("orders").offer("low", 1)
    app.queue("orders").offer("high", 1, priority=9)
    app.queue("orders").offer("later", 1, after=timedelta(hours=1))
    ran = cli("poll", "orders", "--peek", "--max", "9")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["key", "high", "low"]
    counts = app.queues.counts("orders")
    assert (counts.ready.n, counts.leased.n) == (2, 0)
    app.queues.create("empty")
    assert cli("poll", "empty", "--peek", "--json").data["messages"] == []


def test_a_held_message_stays_leased_and_its_token_settles_it(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    (message,) = cli("poll", "orders", "--no-ack", "--lease-for", "5m", "--json").data["messages"]
    length = datetime.fromisoformat(message["lease_until"]) - datetime.fromisoformat(message["leased_at"])
    assert timedelta(minutes=4, seconds=59) < length <= timedelta(minutes=5)
    assert app.queues.counts("orders").leased.n == 1
    assert cli("message", "ack", "orders", "a", message["token"]).code == 0
    assert not app.queue("orders").contains("a")


def test_the_token_is_in_the_table_of_held_messages(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    header, row = cli("poll", "orders", "--no-ack").out.splitlines()
    assert "token" in header.split()
    token = next(word for word in row.split() if word.count("-") == 4)
    assert cli("message", "release", "orders", "a", token).code == 0


def test_a_held_message_can_be_given_back_for_later(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    (message,) = cli("poll", "orders", "--no-ack", "--json").data["messages"]
    assert cli("message", "release", "orders", "a", message["token"], "--after", "10m").code == 0
    stored = app.queue("orders").read("a")
    assert stored is not None
    assert (stored.attempt, stored.state.value) == (0, "delayed")


def test_bytes_are_printed_in_full_before_they_are_finished(cli: Run, app: App) -> None:
    blob = bytes(range(256))
    encoded = base64.b64encode(blob).decode()
    app.queue("orders").offer("a", blob)
    app.queue("orders").offer("b", blob)
    assert cli("poll", "orders").out.splitlines()[1].endswith(f"base64:{encoded}")
    (message,) = cli("poll", "orders", "--json").data["messages"]
    assert message["payload_base64"] == encoded
    assert message["content_type"] == "application/octet-stream"
    assert "payload" not in message


def test_an_undecodable_payload_is_shown_and_not_buried(cli: Run, app: App) -> None:
    from tarry.core.messages.model import Draft

    app.queues.create("orders")
    app.store.run(app.store.messages.offer("orders", Draft("broken", b"{not json")))
    assert cli("message", "list", "orders").out.splitlines()[1].endswith("{not json")
    (message,) = cli("poll", "orders", "--json").data["messages"]
    assert base64.b64decode(message["payload_base64"]) == b"{not json"


def test_polling_a_paused_queue_prints_why_nothing_comes(cli: Run, app: App) -> None:
    app.queue("orders").offer("a", 1)
    app.queues.pause("orders")
    ran = cli("poll", "orders")
    assert (ran.code, ran.out) == (0, "")
    assert "paused" in ran.err


@pytest.mark.parametrize(
    "options",
    [
        ["--ack", "--peek"],
        ["--peek", "--no-ack"],
        ["--max", "0"],
        ["--max", "1001"],
        ["--wait", "x"],
        ["--lease-for", "x"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_received_is_bad_input(refusing: Run, options: list[str]) -> None:
    assert refusing("poll", "orders", *options).code == 2


def test_an_unknown_queue_gives_nothing_and_is_not_created(refusing: Run) -> None:
    assert refusing("poll", "typo").code == 3
    assert refusing("poll", "typo", "--peek", "--json").error["exit_code"] == 3


@pytest.mark.parametrize(("lost", "code"), [(1, 6), (2, 4)])
def test_a_lease_that_was_lost_before_the_ack_is_reported(
    cli: Run, app: App, monkeypatch: pytest.MonkeyPatch, lost: int, code: int
) -> None:
    for key in ("a", "b"):
        app.queue("orders").offer(key, 1)

    def too_late(self: Leases, lease_ids: list[LeaseId]) -> list[Settled]:
        return [Settled.LEASE_LOST] * lost + [Settled.DONE] * (len(lease_ids) - lost)

    monkeypatch.setattr(Leases, "ack", too_late)
    ran = cli("poll", "orders", "--max", "2")
    assert ran.code == code
    assert "after the lease was lost" in ran.err
