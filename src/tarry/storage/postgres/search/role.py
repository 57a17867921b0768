"""`SearchRole` on PostgreSQL."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.messages.model import Counted, MessagePosition, StoredMessage
from tarry.core.search.bulk import KEPT_FOR, BulkJob, BulkProgress, BulkState, Verb
from tarry.core.search.hits import WALK, SearchPage
from tarry.core.search.query import Search
from tarry.storage.postgres.messages.statements import possible, storable, stored_message
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Op, Row, bind, each, first, value

STEP = 2_000
"""Approximate number of messages that one statement scans per priority."""
_LEAST_WALK = 50
_LONGEST = 64 * 1024
"""Bytes of a payload that is read."""
_PAGE = ("scanned", "matched", "horizon_due_at", "horizon_version")
_PLAIN = ("key", "key_prefix", "type", "consumer", "error", "version", "trace")
"""Fields of a search that are parameters as they are."""


class PostgresSearch(PostgresRole):
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> PostgresOperation[SearchPage]:
        params = _params(search)
        params |= {"queues": list(queues), "payloads": payloads, "longest": _LONGEST}
        if search.keys is not None:
            first, end = search.keys
            params |= _from(after) | {"first_key": first, "end_key": end, "walk": WALK, "limit": storable(limit)}
            return self._sql("search/by_key", _page_of(WALK), **params)
        share = max(_LEAST_WALK, STEP // max(1, len(queues)))
        return PostgresOperation(lambda own: _scan({"now": self._now, **params}, storable(limit), after, share))

    def journal_since(self) -> PostgresOperation[datetime | None]:
        return self._sql("search/journal_since", value)

    def start_bulk(
        self, verb: Verb, query: str, queues: Sequence[str], *, started_by: str, error: str | None = None
    ) -> PostgresOperation[BulkJob]:
        about = {"verb": verb.value, "query": query, "queues": list(queues), "started_by": started_by, "error": error}
        return self._sql("search/bulk_start", lambda rows: _bulk_job(rows[0]), **about)

    def bulk_jobs(
        self, *, job: int | None = None, idle_for: timedelta | None = None, limit: int = 50
    ) -> PostgresOperation[list[BulkJob]]:
        return self._sql(
            "search/bulk_jobs", each(_bulk_job), job=possible(job), idle_for=idle_for, limit=storable(limit)
        )  # fmt: skip

    def save_bulk(
        self, job: int, progress: BulkProgress, *, step: int | None = None
    ) -> PostgresOperation[BulkJob | None]:
        due_at, version = progress.after or (None, None)
        return self._sql(
            "search/bulk_save", first(_bulk_job), job=possible(job), step=step, changed=progress.changed,
            skipped=progress.skipped, after_due_at=due_at, after_version=version, state=progress.state.value,
            reason=progress.reason,
        )  # fmt: skip

    def forget_bulk(self, *, limit: int = 1_000) -> PostgresOperation[int]:
        return self._sql("search/bulk_forget", value, kept_for=KEPT_FOR, limit=storable(limit))


def _scan(params: dict[str, Any], limit: int, after: MessagePosition | None, share: int) -> Op[SearchPage]:
    """Run short statements, each from the horizon of the previous one, until the page is full or enough messages were
    scanned."""
    messages: list[StoredMessage[bytes]] = []
    matched = scanned = 0
    while True:
        part = {**params, **_from(after), "limit": max(0, limit - len(messages)), "walk": share}
        page = yield from bind("search/by_due", _page_of(None), **part).run()
        messages += page.messages
        matched, scanned, after = matched + page.matching.n, scanned + page.scanned, page.horizon
        if after is None or scanned >= WALK or 0 < limit <= len(messages):
            matching = Counted(matched, capped=after is not None)
            return SearchPage(messages=messages, matching=matching, scanned=scanned, horizon=after)
        share = max(share, share * 2 * STEP // page.scanned)


def _bulk_job(row: Row) -> BulkJob:
    columns = row._asdict()
    due_at, version = columns.pop("after_due_at"), columns.pop("after_version")
    decoded = {
        "verb": Verb(row.verb),
        "state": BulkState(row.state),
        "queues": tuple(row.queues),
        "after": None if version is None else MessagePosition(due_at, version),
    }
    return BulkJob(**columns | decoded)


def _from(after: MessagePosition | None) -> dict[str, Any]:
    return {
        "after_due_at": after.due_at if after else "-infinity",
        "after_version": possible(after.version) if after else 0,
    }


def _params(search: Search) -> dict[str, Any]:
    return {name: getattr(search, name) for name in _PLAIN} | {
        "state": search.state and search.state.value,
        "lag_least": None if search.lag.now is None else search.lag.least,
        "lag_below": None if search.lag.below == timedelta.max else search.lag.below,
        "fewest": search.attempts.low or 0,
        "most": _or(search.attempts.high, 2**31 - 1),
        "lowest": search.priority.low or 0,
        "highest": min(_or(search.priority.high, 9), 9),
        "due_since": search.due.since or "-infinity",
        "due_until": search.due.until or "infinity",
        "created_since": search.created.since or "-infinity",
        "created_until": search.created.until or "infinity",
    }


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number


def _page_of(walk: int | None) -> Callable[[list[Row]], SearchPage]:
    """Decoder of a page. `walk`: the maximum number of scanned rows of a search without a horizon."""

    def decode(rows: list[Row]) -> SearchPage:
        first = rows[0]
        horizon = (
            None if first.horizon_version is None else MessagePosition(first.horizon_due_at, first.horizon_version)
        )
        return SearchPage(
            messages=[stored_message(row, leaving_out=_PAGE) for row in rows if row.key is not None],
            matching=Counted(first.matched, horizon is not None or first.scanned == walk),
            scanned=first.scanned,
            horizon=horizon,
        )

    return decode
