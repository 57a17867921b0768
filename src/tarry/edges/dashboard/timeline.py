"""The drawing of a message's history: a bar per attempt on one axis, on which long idle times are cut out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from tarry.core.journal.history import Attempt, History, Phase
from tarry.edges.formats import roughly

WIDTH = 900
ROW_HEIGHT = 30
LEFT = 34
RIGHT = 170
TOP = 34
"""Room for the labels of what is cut out."""
SHOWN = 20
"""Attempts that are drawn, the last ones."""
_GAP = 40
_LABELS_Y: tuple[int, ...] = (26, 12)
_LETTER = 7
"""Pixels of a letter of a label, rather too many."""
_TONES = ("acked", "nacked", "buried", "expired", "released", "running")


class Bar(NamedTuple):
    x: float
    width: float
    y: int
    tone: str
    title: str


class Line(NamedTuple):
    x1: float
    x2: float
    y: int
    tone: str
    title: str


class TimelineGap(NamedTuple):
    x: float
    text: str
    y: int
    """Of its label; 0: there is no room for one."""


class DrawnRow(NamedTuple):
    y: int
    name: str
    words: str


class Drawing(NamedTuple):
    bars: Sequence[Bar]
    lines: Sequence[Line]
    gaps: Sequence[TimelineGap]
    rows: Sequence[DrawnRow]
    left: int
    plotted: int
    """The width of what is between the names and the outcomes; a page stretches it."""
    right: int
    height: int
    top: int
    hidden: int
    """Earlier attempts that are not drawn."""


def drawing(history: History) -> Drawing | None:
    hidden = max(0, len(history.attempts) - SHOWN)
    spans = [span for span in history.spans if span.attempt >= hidden]
    if not spans:
        return None
    position_of, gaps = _axis([(span.since, span.until, span.phase is Phase.WORK) for span in spans])
    top = TOP if gaps else 4
    bars: list[Bar] = []
    lines: list[Line] = []
    for span in spans:
        y = top + (span.attempt - hidden) * ROW_HEIGHT + ROW_HEIGHT // 2
        x1, x2 = position_of(span.since), position_of(span.until)
        title = f"{_WORDS[span.phase]} for {roughly(span.lasted)}"
        if span.phase is Phase.WORK:
            attempt = history.attempts[span.attempt] if span.attempt < len(history.attempts) else None
            outcome = "running" if attempt is None else attempt.outcome
            tone = outcome if outcome in _TONES else "other"
            bars.append(Bar(x1, max(3.0, round(x2 - x1, 1)), y - 8, tone, f"{title}: {outcome}"))
        elif span.phase is not Phase.ABSENT:
            lines.append(Line(x1, x2, y, span.phase.value, title))
    count = max(span.attempt for span in spans) - hidden + 1
    rows = [_drawn_row(top + at * ROW_HEIGHT, history.attempts, at + hidden) for at in range(count)]
    height = top + count * ROW_HEIGHT + 6
    return Drawing(bars, lines, gaps, rows, LEFT, WIDTH - LEFT - RIGHT, RIGHT, height, top, hidden)


_WORDS = {Phase.DELAYED: "delayed", Phase.READY: "ready, waited", Phase.WORK: "worked on", Phase.ABSENT: "absent"}


def _drawn_row(top: int, attempts: Sequence[Attempt], index: int) -> DrawnRow:
    y = top + ROW_HEIGHT // 2 + 4
    if index >= len(attempts):
        return DrawnRow(y, "", "waits")
    attempt = attempts[index]
    lasted = "" if attempt.ended_at is None else f" in {roughly(attempt.ended_at - attempt.leased_at)}"
    return DrawnRow(y, f"#{attempt.number}", f"{attempt.outcome}{lasted}")


def _axis(
    parts: Sequence[tuple[datetime, datetime, bool]],
) -> tuple[Callable[[datetime], float], list[TimelineGap]]:
    """Where an instant is, and where idle time is cut out: where it is longer than half of all work."""
    edges = sorted({edge for since, until, _ in parts for edge in (since, until)})
    work = sum((until - since for since, until, is_work in parts if is_work), timedelta(0))
    pieces: list[tuple[datetime, datetime, bool]] = []
    for since, until in pairwise(edges):
        is_work = any(part[2] and part[0] <= since and part[1] >= until for part in parts)
        pieces.append((since, until, not is_work and bool(work) and until - since > work / 2))
    drawn = sum(((until - since) / timedelta(seconds=1) for since, until, is_cut in pieces if not is_cut), 0.0)
    gap = min(_GAP, (WIDTH - LEFT - RIGHT) / (2 * max(1, len(pieces))))
    free = WIDTH - LEFT - RIGHT - gap * sum(is_cut for _, _, is_cut in pieces)
    x, positions, gaps = float(LEFT), {edges[0]: float(LEFT)}, list[TimelineGap]()
    taken = dict.fromkeys(_LABELS_Y, 0.0)
    for since, until, is_cut in pieces:
        if is_cut:
            text, middle = roughly(until - since), x + gap / 2
            half = len(text) * _LETTER / 2
            y = next((y for y in _LABELS_Y if taken[y] <= middle - half), 0)
            taken[y] = middle + half + 4
            gaps.append(TimelineGap(round(middle, 1), text, y))
        x += gap if is_cut else free * ((until - since) / timedelta(seconds=1)) / (drawn or 1)
        positions[until] = round(x, 1)
    return positions.__getitem__, gaps
