"""Images of the README: an hour of traffic, with an outage of an endpoint at its end.

`DASHBOARD_IMAGES=docs/images pytest tests/edges/dashboard/test_screenshots.py` renews them; otherwise nothing is written into
the checkout, and the test checks that they can be made and stay small.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import sin
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, expect

import tarry
from tarry import Message, QueueSettings
from tarry.testing import MutableClock
from tests.edges.dashboard.conftest import THEMES, Screen, Served, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server

MINUTES = 60
OUTAGE_AT = 48
LAST_MINUTE = timedelta(seconds=30)
"""How much nearer than a whole number of minutes: the consumers of the last minute are active when the images are made."""
LARGEST = 200_000
PAGES = {"overview": "/", "dead-letters": "/dead"}


class Traffic(NamedTuple):
    queue: str
    target_s: float
    per_minute: int
    lag_s: float
    consumers: tuple[str, ...]


TRAFFIC = (
    Traffic("emails", 10, 24, 0.8, ("mailer-1", "mailer-2")),
    Traffic("orders", 5, 16, 0.3, ("shop-1", "shop-2")),
    Traffic("webhooks", 10, 12, 1.5, ("hooks-1",)),
    Traffic("reports", 600, 2, 2.5, ("reporter",)),
    Traffic("images", 60, 5, 2, ("resizer",)),
)
REFUSED = "ConnectionError: endpoint 10.0.0.{n} refused after {n} ms"
ODD = "KeyError: 'shipping_address'"


def _minute(app: Any, clock: MutableClock, traffic: Traffic, minute: int, random: Random) -> None:
    """What a queue gets in a minute, and what its consumers do with it."""
    start = clock.pinned()
    queue = app.queue(traffic.queue)
    count = max(1, round(traffic.per_minute * (1 + 0.4 * sin(minute / 7)) + random.randint(-2, 2)))
    queue.offer_many(
        [Message(key=f"{traffic.queue}-{minute}-{n}", payload={"n": n, "tenant": "acme"}) for n in range(count)]
    )
    is_down = traffic.queue == "webhooks" and minute >= OUTAGE_AT
    clock.advance(timedelta(seconds=traffic.lag_s * random.uniform(0.5, 1.6) * (6 if is_down else 1)))
    leases = [delivery.lease_id for delivery in queue.try_poll_many(count)]
    clock.advance(timedelta(seconds=random.uniform(0.05, 0.4)))
    failed = len(leases) * 2 // 3 if is_down else 0
    for lease in leases[:failed]:
        queue.leases.bury([lease], REFUSED.format(n=random.randint(2, 240)))
    if traffic.queue == "orders" and minute % 20 == 19:
        queue.leases.bury([leases.pop()], ODD)
    queue.leases.ack(leases[failed:])
    clock.set(start)


@pytest.fixture(scope="module")
def seeded(server: Server, loop: Loop) -> Iterator[Served]:
    made = served(server, loop, environment="demo")
    random, now = Random(7), datetime.now(UTC)
    clock = MutableClock(now)
    for traffic in TRAFFIC:
        made.app.queues.create(traffic.queue, QueueSettings(target_lag_for=timedelta(seconds=traffic.target_s)))
    apps = {
        name: tarry.connect(made.dsn, clock=clock, consumer=name) for traffic in TRAFFIC for name in traffic.consumers
    }
    for minute in range(MINUTES):
        clock.set(now - timedelta(minutes=MINUTES - minute) + LAST_MINUTE)
        for traffic in TRAFFIC:
            _minute(apps[traffic.consumers[minute % len(traffic.consumers)]], clock, traffic, minute, random)
    for app in apps.values():
        app.close()
    for traffic in TRAFFIC:
        later = [Message(payload=0, after=timedelta(minutes=random.random() * 70)) for _ in range(traffic.per_minute)]
        made.app.queue(traffic.queue).offer_many(later)
    yield made
    made.closing.close()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_images_of_the_readme_can_be_made(
    browser: Browser, seeded: Served, tmp_path: Path, name: str, theme: str
) -> None:
    screen = Screen(browser, seeded.url)
    page = screen.open(PAGES[name], theme=theme)
    page.reload()  # the numbers in the navigation are read in the background
    if name == "overview":
        expect(page.locator("tarry-chart canvas")).to_have_count(3)
    expect(page.locator("table.rows tbody tr").first).to_be_visible()
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    path = Path(os.environ.get("DASHBOARD_IMAGES") or tmp_path) / f"dashboard-{name}-{theme}.png"
    page.screenshot(path=path)
    screen.close()
    assert screen.errors == []
    assert path.stat().st_size < LARGEST
