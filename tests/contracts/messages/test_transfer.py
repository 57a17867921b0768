"""A queue as lines of JSON, out and in, on every store and through a broker."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest

from tarry import Message, Queue, Retry
from tarry.api import transfer
from tarry.app import App
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.settings import QueueSettings
from tests.kit.backends import new_name
from tests.kit.clocks import WatchedClock
from tests.kit.steps import HOUR, take


def everything(app: App, queue: str) -> list[Any]:
    return [
        (m.key, m.payload, m.content_type, m.due_at, m.priority, m.type, m.headers, m.own_max_attempts, m.lease_for, m.retry)
        for m in app.store.run(app.store.messages.list(queue, limit=1_000))
    ]  # fmt: skip


class TestTransfer:
    def test_what_comes_out_goes_in_the_same(
        self, app: App, queue: Queue[Any], clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer, "PAGE", 2)
        monkeypatch.setattr(transfer, "BATCH", 2)
        app.queues.create(queue.name, QueueSettings(max_attempts=9))
        retry = Retry.exponential(timedelta(seconds=3), factor=3.0)
        queue.offer_many(
            [
                Message(key="json", payload={"b": [1, 2.5, None], "a": "ä"}, after=HOUR, priority=9),
                Message(key="text", payload="täxt\n", after=HOUR, type="t", headers={"h": "v"}),
                Message(key="bytes", payload=b"\x00\xff", after=2 * HOUR),
                Message(key="all", payload=None, lease_for=timedelta(seconds=90), max_attempts=5, retry=retry),
                Message(key="held", payload=1, priority=1),
            ]
        )
        held = take(queue)
        lines = list(app.queues.export(queue.name))
        assert len(lines) == 5
        assert held.ack().value == "done"
        copy = new_name()
        report = app.queues.import_lines(copy, io.BytesIO(b"".join(lines)))
        assert (report.lines, report.created, report.problems) == (5, 5, {})
        assert list(app.queues.export(copy)) == lines
        assert app.queues.import_lines(copy, lines).ignored == 5
        assert [row for row in everything(app, copy) if row[0] != "held"] == everything(app, queue.name)

    def test_a_bad_line_is_reported_and_skipped_or_ends_the_import(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name)
        bad = [b'\xef\xbb\xbf{"key":"a","payload":1}', b"{", b"", b'{"key":"b","payload":1}\n']
        assert app.queues.import_lines(queue.name, bad, dry_run=True).fine == 2
        stopped = app.queues.import_lines(queue.name, bad, on_bad="stop")
        assert (stopped.lines, stopped.refused, stopped.not_stored) == (2, 1, 1)
        assert not queue.contains("a")
        skipped = app.queues.import_lines(queue.name, bad)
        assert (skipped.lines, skipped.created, skipped.refused, skipped.blank) == (4, 2, 1, 1)
        assert list(skipped.problems) == [2]
        with pytest.raises(InvalidInput, match="skip or stop"):
            app.queues.import_lines(queue.name, bad, on_bad="explode")  # pyright: ignore[reportArgumentType]

    def test_an_empty_queue_is_no_lines_and_an_unknown_one_is_an_error(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name)
        assert list(app.queues.export(queue.name)) == []
        with pytest.raises(UnknownQueue):
            list(app.queues.export(new_name()))
