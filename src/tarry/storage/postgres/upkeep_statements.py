"""The verbs of leaders and sweepers, one statement each."""

from __future__ import annotations

from datetime import datetime, timedelta

from tarry.core.leading import Leadership
from tarry.core.limits import PRIORITIES
from tarry.core.sweeping import LONGEST_SNAPSHOT, MOST_DEAD_ROWS, Partitions, Strain, SweepPlace, Swept
from tarry.storage.postgres.arrays import MINUS_INFINITY, BigintArray, SmallintArray, TimestampArray
from tarry.storage.postgres.dead_statements import leading
from tarry.storage.postgres.statement import Op, Row, Statement, sql
from tarry.storage.postgres.statements import storable


def lead(name: str, holder: str, lead_for: timedelta, now: datetime | None) -> Statement[Leadership | None]:
    params = {"name": name, "holder": holder, "lead_for": lead_for, "now": now}
    return Statement(sql("lead"), params, _leadership)


def lead_on(held: Leadership, lead_for: timedelta, now: datetime | None) -> Statement[Leadership | None]:
    params = {"name": held.name, "fence": held.fence, "lead_for": lead_for, "now": now}
    return Statement(sql("lead_on"), params, _leadership)


def lead_end(held: Leadership, now: datetime | None) -> Statement[bool]:
    return Statement(sql("lead_end"), {"name": held.name, "fence": held.fence, "now": now}, bool)


def leader(name: str, now: datetime | None) -> Statement[Leadership | None]:
    return Statement(sql("leader"), {"name": name, "now": now}, _leadership)


def sweep(
    queue: str, after: SweepPlace | None, limit: int, lead: Leadership | None, now: datetime | None
) -> Statement[Swept]:
    places = after or (None,) * len(PRIORITIES)
    limit = max(1, storable(limit))
    params = {
        "queue": queue,
        "limit": limit,
        "priorities": SmallintArray(PRIORITIES),
        "after_due_at": TimestampArray([p and p[0] for p in places], missing=MINUS_INFINITY),
        "after_version": BigintArray([p[1] if p else 0 for p in places]),
        **leading(lead, now),
    }

    def decode(rows: list[Row]) -> Swept:
        if not rows:
            return Swept()
        reached = list(places)
        for _, _, priority, _, due_at, version in rows:
            reached[priority] = (due_at, version)
        # A priority that gave all that was asked for may have more; one that did not is through, and its place is kept
        # until all are: what comes in meanwhile is for the next round.
        more = any(walked >= limit for _, _, _, walked, _, _ in rows)
        return Swept(rows[0][0], rows[0][1], sum(row[3] for row in rows), tuple(reached) if more else None)

    return Statement(sql("sweep"), params, decode)


def make_partitions(days: int, lead: Leadership | None, now: datetime | None) -> Op[Partitions]:
    params = {"days": days, **leading(lead, now)}
    made = yield from Statement(sql("partitions_ahead"), params, lambda rows: Partitions(*rows[0])).run()
    more = yield from Statement(sql("partitions_step"), params, lambda rows: bool(rows[0][0])).run()
    return made._replace(more=more)


def strains() -> Statement[list[Strain]]:
    def decode(rows: list[Row]) -> list[Strain]:
        dead, live, who, age = rows[0]
        found: list[Strain] = []
        if dead > MOST_DEAD_ROWS and dead > live:
            found.append(
                Strain(
                    "dead rows",
                    f"{dead:,} dead rows beside {live:,} live ones in tarry.message",
                    "see that autovacuum runs, and look for what holds it back: a transaction left open",
                )
            )
        if age is not None and age > LONGEST_SNAPSHOT:
            found.append(
                Strain(
                    "oldest snapshot",
                    f"{who} has been open for {age - timedelta(microseconds=age.microseconds)}",
                    "end it: until then nothing that died since can be cleaned up, and every poll gets slower",
                )
            )
        return found

    return Statement(sql("strains"), {}, decode)


def _leadership(rows: list[Row]) -> Leadership | None:
    return Leadership(*rows[0]) if rows else None
