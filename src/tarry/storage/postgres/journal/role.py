"""`JournalRole` on PostgreSQL."""

from tarry.core.journal.events import Event
from tarry.core.journal.positions import EventPage
from tarry.storage.postgres.journal import statements, tail
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue
from tarry.storage.postgres.statement import Op


class PostgresJournal(PostgresRole):
    def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None
    ) -> PostgresOperation[list[Event]]:
        def steps(own: bool) -> Op[list[Event]]:  # noqa: FBT001
            if own:
                yield from statements.prefer_bitmap_scans().run()  # until the end of the transaction, which is ours
            return (yield from statements.timeline(queue, key, limit, before).run())

        return PostgresOperation(lambda own: in_known_queue(lambda: steps(own)), atomic=True)

    def tail(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> PostgresOperation[EventPage]:
        return PostgresOperation(lambda own: tail.tail(after, until, limit, most), atomic=True)
