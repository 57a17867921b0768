"""`conn=`: a schedule is installed, changed and looked after in the caller's own transaction, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import CronMessage, tick_key
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import POSTGRES, Backend
from tests.kit.callers import Caller
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import ticks_of, verdicts
from tests.kit.steps import HOUR, take


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
class TestInATransaction:
    @pytest.fixture
    def caller(self, backend: Backend) -> Iterator[Caller]:
        with backend.caller() as caller:
            yield caller

    def test_it_is_installed_with_the_commit(
        self, cron: Cron, queue: Queue[Any], name: str, caller: Caller, clock: WatchedClock
    ) -> None:
        queue.offer("before", 1, after=9 * HOUR)
        cron.install_periodic(name, HOUR, queue=queue.name, payload=1, conn=caller.conn)
        assert cron.schedules.get(name, conn=caller.conn).name == name
        assert cron.schedules.list() == []
        clock.advance(HOUR)
        assert queue.try_poll() is None
        caller.commit()
        assert ticks_of(queue) == [START + HOUR]

    def test_a_change_that_is_rolled_back_takes_nothing_back(
        self, cron: Cron, queue: Queue[Any], name: str, caller: Caller, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["01:00"], zone="UTC", queue=queue.name, payload="old")
        cron.install_cron(name, "30 0 * * *", zone="UTC", queue=queue.name, payload="new", conn=caller.conn)
        cron.schedules.pause(name, conn=caller.conn)
        caller.rollback()
        clock.advance(HOUR)
        assert take(queue).payload == "old"
        assert verdicts(cron.schedules.history(name)) == [(1, "planned", "on_time")]
        assert not cron.schedules.get(name).paused

    def test_ticks_of_a_program_and_runs_by_hand_go_with_it_too(
        self, cron: Cron, queue: Queue[Any], name: str, caller: Caller
    ) -> None:
        queue.offer("before", 1, after=9 * HOUR)
        cron.install_tick("h1", name, [CronMessage("x", START)], queue=queue.name, conn=caller.conn)
        caller.rollback()
        assert queue.try_poll() is None
        cron.install_tick("h1", name, [CronMessage("x", START)], queue=queue.name)
        cron.uninstall_tick("h1", name, conn=caller.conn)
        caller.rollback()
        assert take(queue).payload == "x"
        cron.install_periodic(name, HOUR, queue=queue.name)
        cron.schedules.trigger(name, conn=caller.conn)
        cron.schedules.skip(name, conn=caller.conn)
        caller.rollback()
        assert queue.try_poll() is None
        assert {verdict for _, verdict, _ in verdicts(cron.schedules.history(name))} == {"planned"}


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
def test_without_a_transaction_ticks_and_their_ledger_are_stored_together_or_not_at_all(
    backend: Backend, app: App, cron: Cron, queue: Queue[Any], name: str
) -> None:
    queue.offer("before", 1, after=9 * HOUR)
    with backend.caller(autocommit=True) as caller, backend.caller() as other:
        caller.execute("set lock_timeout = '100ms'")
        queue.offer(tick_key(name, "h1", START), "in the way", conn=other.conn)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            cron.install_tick("h1", name, [CronMessage("x", START)], queue=queue.name, conn=caller.conn)
        other.rollback()
        assert app.store.run(app.store.cron.ticks(name)) == []
        cron.install_tick("h1", name, [CronMessage("x", START)], queue=queue.name, conn=caller.conn)
    assert take(queue).payload == "x"
