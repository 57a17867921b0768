"""Search for live messages, dead letters and finished messages, each page with a bounded scan."""

from collections.abc import Sequence
from dataclasses import dataclass

from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.dead_letters.redrive import DeadFilter, DeadPosition
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.model import Counted, MessagePosition
from tarry.core.messages.states import State
from tarry.core.ports import AsyncStore
from tarry.core.search.hits import Hit
from tarry.core.search.query import Search

READ = 500
"""Maximum number of payloads or dead letters that one page reads."""
EVENTS = 1_000
"""Maximum number of events that one page of finished messages reads, out of up to 50,000 scanned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    rows: Sequence[Hit]
    scanned: int
    matching: Counted | None = None
    """None: not counted."""
    next_live: MessagePosition | None = None
    next_dead: DeadPosition | None = None
    next_done: str | None = None
    complete: bool = False
    """Nothing is left to scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start of a page; live and finished messages have different orders."""

    live: MessagePosition | None = None
    done: str | None = None


FIRST = Start()


async def find(store: AsyncStore, search: Search, queues: Sequence[str], *, limit: int, start: Start = FIRST) -> Hits:
    """`queues`: the visible ones, of which the query may name one."""
    named = [name for name in queues if search.queue in (None, name)]
    if search.state is State.DEAD:
        return await _dead(store, search, named, limit, start.live)
    if search.state is State.DONE:
        return await _done(store, search, named, limit, start.done)
    return await _live(store, search, named, limit, start.live)


async def _live(
    store: AsyncStore, search: Search, queues: Sequence[str], limit: int, after: MessagePosition | None
) -> Hits:
    reads = bool(search.payload)
    page_size = READ if reads else limit
    page = await store.run(store.search.messages(search, queues, limit=page_size, after=after, payloads=reads))
    matching = [message for message in page.messages if search.admits_payload(message.payload)]
    rows = matching[:limit]
    is_last = len(page.messages) < page_size and len(rows) == len(matching)
    last = rows[-1] if len(rows) < len(matching) else page.messages[-1] if page.messages else None
    end = None if last is None else MessagePosition(last.due_at, last.version)
    next_position = page.horizon if is_last else end
    is_more = page.horizon is not None or (not is_last and page.matching.n > len(rows))
    return Hits(
        rows=[Hit.of_live(message) for message in rows],
        scanned=len(page.messages) if reads else page.scanned,
        matching=None if reads else page.matching,
        next_live=next_position if is_more else None,
        complete=not is_more and not page.matching.capped,
    )


async def _dead(
    store: AsyncStore, search: Search, queues: Sequence[str], limit: int, after: MessagePosition | None
) -> Hits:
    if search.queue is None:
        hint = "add queue:NAME, or see the dead letters of all queues"
        raise InvalidInput("state: dead letters are searched in one queue", hint=hint)
    if not queues:
        return Hits(rows=[], scanned=0, complete=True)
    versions = None if search.version is None else (search.version,)
    where = DeadFilter(type=search.type, key_prefix=search.key or search.key_prefix, versions=versions)
    before = None if after is None else DeadPosition(*after)
    letters = await store.run(store.dead_letters.list(queues[0], where=where, limit=READ, before=before))
    matching = [
        letter for letter in letters if search.admits_payload(letter.payload) and search.admits(Hit.of_dead(letter))
    ]
    rows = matching[:limit]
    last = rows[-1] if len(rows) < len(matching) else letters[-1] if len(letters) == READ else None
    return Hits(
        rows=[Hit.of_dead(letter) for letter in rows],
        scanned=len(letters),
        matching=Counted(len(matching), len(letters) == READ) if after is None else None,
        next_dead=None if last is None else DeadPosition(last.died_at, last.version),
        complete=last is None,
    )


async def _done(store: AsyncStore, search: Search, queues: Sequence[str], limit: int, after: str | None) -> Hits:
    if search.payload:
        raise InvalidInput("payload: finished messages have no payload any more", hint="search without state:done")
    if search.key is not None and search.queue is not None and queues:
        events = (await store.run(store.journal.timeline(search.queue, search.key)))[::-1]
        rows = [event for event in events if _is_done(search, event, queues)][:limit]
        return Hits(rows=[Hit.of_done(event) for event in rows], scanned=len(events), complete=True)
    if search.queue is not None and not queues:
        return Hits(rows=[], scanned=0, complete=True)
    narrows = search != Search(queue=search.queue, state=search.state, consumer=search.consumer)
    query = AnalyticsQuery(queue=search.queue, after=after, limit=EVENTS if narrows else limit)
    page = await store.run(store.analytics.events(query, kinds=[EventKind.ACKED], consumer=search.consumer))
    rows = [event for event in page.rows if _is_done(search, event, queues)]
    return Hits(
        rows=[Hit.of_done(event) for event in rows],
        scanned=len(page.rows),
        next_done=page.next,
        complete=page.next is None,
    )


def _is_done(search: Search, event: Event, queues: Sequence[str]) -> bool:
    """Events have no type, trace or creation time, so these terms match nothing."""
    is_ack = event.kind is EventKind.ACKED and event.queue in queues and event.key is not None
    return is_ack and search.admits(Hit.of_done(event))
