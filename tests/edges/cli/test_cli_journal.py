"""tarry journal: the events after a position, and later ones as they are committed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

from tarry.app import App
from tests.edges.conftest import Run

Start = Callable[..., subprocess.Popen[bytes]]


def test_a_tail_begins_at_the_end_and_continues_from_its_position(cli: Run, app: App) -> None:
    app.queue("orders").offer("before", 1)
    app.queues.create("mails")
    begun = cli("journal", "tail", "--json").data
    assert (begun["schema"], begun["events"]) == ("tarry.event.tail/1", [])
    app.queue("orders").offer("a", 1)
    app.queue("mails").offer("b", 1)
    after = ("journal", "tail", "--after", begun["position"])
    lines = cli(*after, "-o", "jsonl").lines
    assert [(line["schema"], line["queue"], line["key"], line["kind"]) for line in lines] == [
        ("tarry.event/1", "orders", "a", "offered"),
        ("tarry.event/1", "mails", "b", "offered"),
    ]
    (later,) = cli("journal", "tail", "--after", lines[0]["position"], "-o", "jsonl").lines
    assert later["key"] == "b"
    assert [event["key"] for event in cli(*after, "--queue", "orders", "--json").data["events"]] == ["a"]
    assert cli(*after, "--kind", "buried", "--json").data["events"] == []
    shown = cli(*after)
    assert ["offered" in line for line in shown.out.splitlines()] == [True, True]
    assert "tarry journal tail --after" in shown.err


def test_a_position_of_another_journal_is_a_gap(cli: Run, app: App) -> None:
    app.queues.create("orders")
    assert "events may be missing" in cli("journal", "tail", "--after", "nonsense").err


def test_a_tail_that_waits_prints_each_event_as_it_is_committed(cli: Run, app: App, process: Start) -> None:
    app.queues.create("orders")
    position = cli("journal", "tail", "--json").data["position"]
    tail = process("journal", "tail", "--follow", "--after", position, "-o", "jsonl")
    assert tail.stdout is not None
    for key in ("a", "b"):
        app.queue("orders").offer(key, 1)
        assert json.loads(tail.stdout.readline())["key"] == key
    tail.send_signal(signal.SIGINT)
    assert tail.wait() == 130
    assert tail.stderr is not None
    assert tail.stderr.read() == b"", "it ends as quietly as tail -f"


def test_a_tail_that_waits_has_no_end_that_would_close_a_document(cli: Run) -> None:
    ran = cli("journal", "tail", "--follow", "--json")
    assert (ran.code, "jsonl" in ran.error["hint"]) == (2, True)


def test_an_unknown_queue_has_no_tail(cli: Run) -> None:
    assert cli("journal", "tail", "--queue", "absent").code == 3
