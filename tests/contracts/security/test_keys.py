"""API keys, the audit, and pages of messages: the same on every store that a broker may stand on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry import Queue
from tarry.api.api_keys import drawn
from tarry.app import App
from tarry.core.messages.model import Filter, MessagePosition
from tarry.core.security.api_keys import Action, KeyText
from tarry.core.security.audit import AuditEntry
from tests.kit.backends import Backend, new_name, where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE

pytestmark = where_the_messages_are


@pytest.fixture
def app(backend: Backend) -> App:
    return backend.app("tester")


class TestKeys:
    def test_a_key_is_found_by_its_id_and_proven_by_its_secret(self, app: App) -> None:
        issued = app.keys.create("shop", ["produce"], ["orders", "mail-*"])
        text = KeyText.parse(issued.text)
        assert text is not None
        (stored,) = app.store.run(app.store.security.keys([text.id, "0" * 12]))
        assert stored == issued.key
        assert (stored.name, stored.actions, stored.queues) == ("shop", {Action.PRODUCE}, ("orders", "mail-*"))
        assert (stored.created_at, stored.expires_at, stored.revoked_at) == (START, None, None)
        assert text.proves(stored)
        assert not text._replace(secret="0" * 64).proves(stored)
        assert not text.proves(None)

    def test_keys_are_found_together(self, app: App) -> None:
        ids = [app.keys.create(name, ["produce"]).key.id for name in "abc"]
        assert {key.id for key in app.store.run(app.store.security.keys([ids[2], "0" * 12, ids[0]]))} == {
            ids[0],
            ids[2],
        }
        assert app.store.run(app.store.security.keys([])) == []

    def test_nothing_that_is_stored_or_shown_is_the_secret(self, app: App) -> None:
        issued = app.keys.create("shop", ["read"])
        assert issued.text.split("_")[2].encode() not in issued.key.secret_hash
        assert "hash" not in repr(issued.key)

    def test_keys_end_when_they_expire_by_the_stores_clock(self, app: App, clock: WatchedClock) -> None:
        issued = app.keys.create("shop", ["read"], expires_for=HOUR)
        text = KeyText.parse(issued.text)
        assert text is not None
        clock.advance(HOUR - timedelta(microseconds=1))
        assert text.proves(app.store.run(app.store.security.keys([text.id]))[0])
        clock.advance(timedelta(microseconds=1))
        assert not text.proves(app.store.run(app.store.security.keys([text.id]))[0])

    def test_keys_end_at_their_bound_at_the_latest(self, app: App) -> None:
        made = [
            app.store.run(
                app.store.security.add_key(
                    drawn("shop", ["read"], ["*"], expires_for, START + HOUR)[1], expires_for=expires_for
                )
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


class TestAudit:
    def test_an_audit_row_exists_before_the_response(self, app: App) -> None:
        row = app.store.run(app.store.security.audit(AuditEntry("me", "pause", "q", {"why": "not"}, "r")))
        newest = app.store.run(app.store.security.audits(limit=1))[0]
        assert (newest.id, newest.at, newest.actor, newest.action) == (row, START, "me", "pause")
        assert (newest.queue, newest.detail, newest.request_id, newest.status) == ("q", {"why": "not"}, "r", None)
        app.store.run(app.store.security.audited(row, 200))
        assert app.store.run(app.store.security.audits(limit=1))[0].status == 200

    def test_what_is_known_at_the_end_is_added_to_the_row(self, app: App) -> None:
        for before, after in (({"why": "not"}, {"why": "not", "id": "k"}), (None, {"id": "k"})):
            row = app.store.run(app.store.security.audit(AuditEntry("me", "create", detail=before)))
            app.store.run(app.store.security.audited(row, 201, detail={"id": "k"}))
            assert app.store.run(app.store.security.audits(limit=1))[0].detail == after

    def test_the_list_goes_on_before_a_row(self, app: App) -> None:
        ids = [app.store.run(app.store.security.audit(AuditEntry("me", f"a{n}"))) for n in range(5)]
        rows = app.store.run(app.store.security.audits(limit=2, before=ids[3]))
        assert [(row.id, row.action) for row in rows] == [(ids[2], "a2"), (ids[1], "a1")]
        assert not [row for row in app.store.run(app.store.security.audits(before=ids[0])) if row.id >= ids[0]]

    def test_the_list_may_be_of_an_actor_and_an_action(self, app: App) -> None:
        actor = new_name()
        for by, action in ((actor, "pause a queue"), (f"x{actor}y", "purge"), ("other", "pause a queue")):
            app.store.run(app.store.security.audit(AuditEntry(by, action)))

        def listed(**conditions: Any) -> list[tuple[str, str]]:
            return [(row.actor, row.action) for row in app.store.run(app.store.security.audits(**conditions))]

        assert listed(actor=actor.upper()) == [(f"x{actor}y", "purge"), (actor, "pause a queue")]
        assert listed(actor=actor, action="PAUSE") == [(actor, "pause a queue")]
        assert listed(actor=actor, action="%") == []
        assert listed(actor=actor, limit=1) == [(f"x{actor}y", "purge")]


class TestPages:
    def shown(self, app: App, queue: Queue[Any], **conditions: Any) -> list[str]:
        return [
            message.key for message in app.store.run(app.store.messages.list(queue.name, filter=Filter(**conditions)))
        ]

    @pytest.fixture
    def queue(self, app: App) -> Queue[Any]:
        from tests.kit.backends import new_name

        queue = app.queue(new_name())
        for i in range(6):
            queue.offer(f"k{i}", i, after=MINUTE * (i // 2), priority=i % 3, type="odd" if i % 2 else None)
        return queue

    def test_a_page_begins_behind_a_place(self, app: App, queue: Queue[Any]) -> None:
        third = app.store.run(app.store.messages.list(queue.name))[2]
        assert self.shown(app, queue, after=MessagePosition(third.due_at, third.version)) == ["k3", "k4", "k5"]
        last = app.store.run(app.store.messages.list(queue.name))[-1]
        assert self.shown(app, queue, after=MessagePosition(last.due_at, last.version)) == []

    def test_filters_may_be_combined(self, app: App, queue: Queue[Any]) -> None:
        assert self.shown(app, queue, type="odd") == ["k1", "k3", "k5"]
        assert self.shown(app, queue, priority=0) == ["k0", "k3"]
        assert self.shown(app, queue, type="odd", priority=0) == ["k3"]
        assert self.shown(app, queue, key_prefix="k") == [f"k{i}" for i in range(6)]
        assert self.shown(app, queue, key_prefix="k_") == []
