"""The last ticks of many schedules in one read, for a list of schedules. On stores with rollups."""

from __future__ import annotations

from typing import Any

from tarry import Queue
from tarry.app import App
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler
from tests.kit.steps import HOUR


@where_the_messages_are
def test_each_schedule_has_its_last_ticks_newest_first(
    app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
) -> None:
    names = [f"{name}-a", f"{name}-b"]
    for each in names:
        cron.install_periodic(each, HOUR, queue=queue.name, misfire="all")
    clock.advance(3.5 * HOUR)
    scheduler(app).run_once()
    cron.schedules.pause(names[1])
    now, rollups = START + 3.5 * HOUR, app.store.rollups
    records = app.store.run(rollups.recent_ticks([*names, "missing"], now, limit=2))
    assert [(record.name, record.tick) for record in records] == [
        (each, START + hours * HOUR) for each in names for hours in (3, 2)
    ]
    assert records[0] == cron.schedules.history(names[0], until=now, limit=1)[0]
    assert app.store.run(rollups.recent_ticks([names[0]], START, limit=2)) == []
    assert app.store.run(rollups.recent_ticks([], now, limit=2)) == []
