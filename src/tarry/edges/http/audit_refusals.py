"""Audit rows for refused requests, limited in number: a client without a key must not be able to fill the audit."""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from tarry.core.errors import TarryError
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import KeyText
from tarry.core.security.audit import AuditEntry
from tarry.edges.http.problems import Problem

STATUSES = (401, 403)
WINDOW_S = 60.0
ROWS = 20
"""Rows per window and status. For 401, existing keys have a separate budget: made-up keys cannot crowd out refusals of
real keys."""
_REMEMBERED = 1_000
_log = logging.getLogger("tarry.http")


class Refusals:
    """Writes one row for the first refusal of a caller on a route. Its next row counts repetitions within the minute."""

    def __init__(self, store: AsyncStore, exists: Callable[[str], bool]) -> None:
        """`exists` returns whether a key with this id exists, valid or not. It must not query the database."""
        self._store = store
        self._exists = exists
        self._seen: OrderedDict[tuple[str, str, int], tuple[float, int]] = OrderedDict()
        self._window_start_s = 0.0
        self._rows: Counter[tuple[int, bool]] = Counter()
        self._left_out: Counter[tuple[int, bool]] = Counter()

    async def note(self, request: Request, action: str, problem: Problem, key_text: str | None) -> None:
        """Record a refusal. `key_text` is the key that the client sent, valid or not."""
        status, caller, parsed = problem.status, request.scope.get("tarry.caller"), KeyText.parse(key_text or "")
        claimed = None if parsed is None else parsed.id
        actor = "unknown" if caller is None else caller.id
        seen_key, now = (caller.id if caller is not None else claimed or "", action, status), time.monotonic()
        first_s, times = self._seen.get(seen_key, (0.0, 0))
        if times and now < first_s + WINDOW_S:
            self._seen[seen_key] = (first_s, times + 1)
            return
        if now >= self._window_start_s + WINDOW_S:
            self._window_start_s = now
            self._rows.clear()
        budget = status, caller is not None or (claimed is not None and self._exists(claimed))
        if self._rows[budget] >= ROWS:
            self._left_out[budget] += 1
            return
        self._rows[budget] += 1
        self._seen[seen_key] = (now, 1)
        self._seen.move_to_end(seen_key)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        detail = {
            "reason": problem.detail,
            "path": {name: str(value)[:200].replace("\x00", "") for name, value in request.path_params.items()},
            "peer": None if request.client is None else request.client.host,
            "claimed_key": claimed if caller is None else None,
            "repeated_before": times - 1 if times else None,
            "left_out_before": self._left_out.pop(budget, None),
        }
        try:
            known = {name: value for name, value in detail.items() if value}
            entry = AuditEntry(actor, action, detail=known, request_id=request.scope.get("tarry.request_id"))
            row = await self._store.run(self._store.security.audit(entry))
            await self._store.run(self._store.security.audited(row, status))
        except TarryError as error:
            _log.warning("the refusal of %s is not in the audit: %s", action, error)
