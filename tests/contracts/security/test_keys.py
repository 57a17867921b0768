"""API keys, the audit, and pages of messages: the same on every store that a broker may stand on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.core.keys import Action, KeyText
from tarry.core.messages import Filter, Place
from tarry.handles.keys import drawn
from tests.kit.backends import HTTP, Backend
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE


@pytest.fixture
def app(backend: Backend) -> App:
    if backend.name in HTTP:
        pytest.skip("keys are made where the messages are")
    return backend.app("tester")


class TestKeys:
    def test_a_key_is_found_by_its_id_and_proven_by_its_secret(self, app: App) -> None:
        issued = app.keys.create("shop", ["produce"], ["orders", "mail-*"])
        text = KeyText.parse(issued.text)
        assert text is not None
        (found,) = app.store.find_keys([text.id, "0" * 12])
        assert found == issued.key
        assert (found.name, found.actions, found.queues) == ("shop", {Action.PRODUCE}, ("orders", "mail-*"))
        assert (found.created_at, found.expires_at, found.revoked_at) == (START, None, None)
        assert text.proves(found)
        assert not text._replace(secret="0" * 64).proves(found)
        assert not text.proves(None)

    def test_keys_are_found_together(self, app: App) -> None:
        ids = [app.keys.create(name, ["produce"]).key.id for name in "abc"]
        assert {key.id for key in app.store.find_keys([ids[2], "0" * 12, ids[0]])} == {ids[0], ids[2]}
        assert app.store.find_keys([]) == []

    def test_nothing_that_is_stored_or_shown_is_the_secret(self, app: App) -> None:
        issued = app.keys.create("shop", ["read"])
        assert issued.text.split("_")[2].encode() not in issued.key.secret_hash
        assert "hash" not in repr(issued.key)

    def test_keys_end_when_they_expire_by_the_stores_clock(self, app: App, clock: WatchedClock) -> None:
        issued = app.keys.create("shop", ["read"], expires_for=HOUR)
        text = KeyText.parse(issued.text)
        assert text is not None
        clock.advance(HOUR - timedelta(microseconds=1))
        assert text.proves(app.store.find_keys([text.id])[0])
        clock.advance(timedelta(microseconds=1))
        assert not text.proves(app.store.find_keys([text.id])[0])

    def test_keys_end_at_their_bound_at_the_latest(self, app: App) -> None:
        made = [
            app.store.add_key(
                drawn("shop", ["read"], ["*"], expires_for, START + HOUR)[1], expires_for=expires_for
            ).expires_at
            for expires_for in (None, 2 * HOUR, MINUTE)
        ]
        assert made == [START + HOUR, START + HOUR, START + MINUTE]

    def test_a_revoked_key_stays_in_the_list_and_proves_nothing(self, app: App, clock: WatchedClock) -> None:
        issued = app.keys.create("shop", ["read"])
        revoked = app.keys.revoke(issued.key.id)
        assert revoked is not None
        assert (revoked.revoked_at, revoked.active) == (START, False)
        clock.advance(MINUTE)
        assert app.keys.revoke(issued.key.id) == revoked
        assert revoked in app.keys.list()
        assert app.keys.revoke("f" * 12) is None

    @pytest.mark.parametrize(
        ("actions", "queues"),
        [([], ["*"]), (["fly"], ["*"]), (["read"], []), (["read"], ["a/b"]), (["read"], ["*a"]), (["read"], [""])],
    )
    def test_bad_input_makes_no_key(self, app: App, actions: list[str], queues: list[str]) -> None:
        before = app.keys.list()
        with pytest.raises(InvalidInput):
            app.keys.create("shop", actions, queues)
        with pytest.raises(InvalidInput):
            app.keys.create("", ["read"])
        assert app.keys.list() == before


class TestAudit:
    def test_a_row_is_there_before_its_answer(self, app: App) -> None:
        row = app.store.audit("me", "pause", queue="q", detail={"why": "not"}, request_id="r")
        newest = app.store.audits(limit=1)[0]
        assert (newest.id, newest.at, newest.actor, newest.action) == (row, START, "me", "pause")
        assert (newest.queue, newest.detail, newest.request_id, newest.status) == ("q", {"why": "not"}, "r", None)
        app.store.audited(row, 200)
        assert app.store.audits(limit=1)[0].status == 200

    def test_what_is_known_at_the_end_is_added_to_the_row(self, app: App) -> None:
        for before, after in (({"why": "not"}, {"why": "not", "id": "k"}), (None, {"id": "k"})):
            row = app.store.audit("me", "create", detail=before)
            app.store.audited(row, 201, detail={"id": "k"})
            assert app.store.audits(limit=1)[0].detail == after


class TestPages:
    def shown(self, app: App, queue: Queue[Any], **wanted: Any) -> list[str]:
        return [found.key for found in app.store.messages(queue.name, filter=Filter(**wanted))]

    @pytest.fixture
    def queue(self, app: App) -> Queue[Any]:
        from tests.kit.backends import new_name

        queue = app.queue(new_name())
        for i in range(6):
            queue.offer(f"k{i}", i, after=MINUTE * (i // 2), priority=i % 3, type="odd" if i % 2 else None)
        return queue

    def test_a_page_begins_behind_a_place(self, app: App, queue: Queue[Any]) -> None:
        third = app.store.messages(queue.name)[2]
        assert self.shown(app, queue, after=Place(third.due_at, third.version)) == ["k3", "k4", "k5"]
        last = app.store.messages(queue.name)[-1]
        assert self.shown(app, queue, after=Place(last.due_at, last.version)) == []

    def test_filters_may_be_combined(self, app: App, queue: Queue[Any]) -> None:
        assert self.shown(app, queue, type="odd") == ["k1", "k3", "k5"]
        assert self.shown(app, queue, priority=0) == ["k0", "k3"]
        assert self.shown(app, queue, type="odd", priority=0) == ["k3"]
        assert self.shown(app, queue, key_prefix="k") == [f"k{i}" for i in range(6)]
        assert self.shown(app, queue, key_prefix="k_") == []
