"""What a page offers that ran over its time: the same question about less, as links. Nothing is read for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tarry.edges.dashboard.commands import path
from tarry.edges.dashboard.ranges import RANGES

if TYPE_CHECKING:
    from tarry.edges.dashboard.screen import View

MOST_QUEUES = 5


class Narrower(NamedTuple):
    label: str
    href: str


NarrowerFunction = Callable[["View"], Sequence[Narrower]]


def nothing(view: View) -> list[Narrower]:
    """For a page that always reads the same."""
    return []


def shorter_ranges(view: View) -> list[Narrower]:
    """The page with each preset time range that is shorter than its own."""
    length = view.range.until - view.range.since
    shorter = [name for name, (preset, _) in RANGES.items() if preset < length]
    return [Narrower(f"the last {name}", view.here(range=name, after=None)) for name in reversed(shorter)]


def of_each_queue(view: View, link: Callable[[str], str]) -> list[Narrower]:
    """A link for each of the first queues, by the names that the navigation has read before."""
    return [
        Narrower(f"queue {name} alone", link(name)) for name in view.dashboard.badges.queues(view.sees)[:MOST_QUEUES]
    ]


def one_queue(view: View) -> list[Narrower]:
    return of_each_queue(view, lambda name: view.url(path("queues", name)))


def shorter_or_one_queue(view: View) -> list[Narrower]:
    return [*shorter_ranges(view), *one_queue(view)]


def filtered_by_queue(view: View) -> list[Narrower]:
    """For a list with a filter `?queue=`."""
    return [] if view.query.get("queue") else of_each_queue(view, lambda name: view.here(queue=name, after=None))
