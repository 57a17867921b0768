"""Answers that are stored with what they tell of: the statements, the op that joins them, and what both shells share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tarry.core.errors import HeldUp
from tarry.core.leading import Leadership
from tarry.core.messages import Draft
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Outcome
from tarry.storage.postgres import ops
from tarry.storage.postgres.arrays import ByteaArray, SmallintArray, TextArray
from tarry.storage.postgres.dead_statements import leading
from tarry.storage.postgres.statement import Op, Row, Statement, sql
from tarry.storage.postgres.statements import storable

Recalled = dict[int, Answered | None]
"""By place. None: the key was used for another request. What is not in it was not answered yet."""


class OfferOnce(NamedTuple):
    draft: Draft
    request: Once
    show: Callable[[Outcome], Answered]


def recall(requests: Sequence[Once]) -> Statement[Recalled]:
    def decode(rows: list[Row]) -> Recalled:
        found: Recalled = {}
        for _, place, fingerprint, status, body in rows:
            if place is not None:
                same = requests[int(place) - 1].fingerprint == fingerprint
                found[place - 1] = Answered(status, body, replayed=True) if same else None
        return found

    params = {"callers": TextArray([r.caller for r in requests]), "keys": TextArray([r.key for r in requests])}
    return Statement(sql("answer_recall"), params, decode)


def keep(answers: Sequence[tuple[Once, Answered]], now: datetime | None) -> Statement[None]:
    def decode(rows: list[Row]) -> None:
        if rows[0][0] < len(answers):
            raise HeldUp("the same request was being carried out at the same time", hint="say it again")

    params = {
        "callers": TextArray([request.caller for request, _ in answers]),
        "keys": TextArray([request.key for request, _ in answers]),
        "fingerprints": ByteaArray([request.fingerprint for request, _ in answers]),
        "statuses": SmallintArray([answered.status for _, answered in answers]),
        "bodies": ByteaArray([answered.body for _, answered in answers]),
        "now": now,
    }
    return Statement(sql("answer_keep"), params, decode)


def forget(older_than: timedelta, limit: int, lead: Leadership | None, now: datetime | None) -> Statement[int]:
    params = {"older_than": older_than.total_seconds(), "limit": storable(limit), **leading(lead, now)}
    return Statement(sql("answers_forget"), params, lambda rows: rows[0][0])


def offer_once(queue: str, items: Sequence[OfferOnce], now: datetime | None) -> Op[list[Answered | None]]:
    """In one transaction: what was answered before, or else the offers and their answers. Each key of a message once."""
    answers: Recalled = yield from recall([item.request for item in items]).run()
    first: dict[tuple[str, str], int] = {}
    for place, item in enumerate(items):
        if place not in answers:
            first.setdefault((item.request.caller, item.request.key), place)
    if first:
        new = list(first.values())
        outcomes = yield from ops.offer_many(queue, [items[place].draft for place in new], now)
        shown = [items[place].show(outcome) for place, outcome in zip(new, outcomes, strict=True)]
        yield from keep([(items[place].request, a) for place, a in zip(new, shown, strict=True)], now).run()
        answers |= dict(zip(new, shown, strict=True))
    for place, item in enumerate(items):
        if place not in answers:  # said twice in this very batch
            same = items[twin := first[item.request.caller, item.request.key]].request == item.request
            answered = answers[twin]
            answers[place] = answered._replace(replayed=True) if same and answered is not None else None
    return [answers[place] for place in range(len(items))]
