"""`QueuesRole` on PostgreSQL."""

from datetime import datetime
from functools import partial

from tarry.core.clock import Clock
from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.limits import check_queue_name
from tarry.core.messages.model import Counts
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.storage.postgres.messages import statements as message_statements
from tarry.storage.postgres.messages.live_heads import LiveHeads, ScanKey
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue, operation
from tarry.storage.postgres.queues import statements
from tarry.storage.postgres.queues.statements import info_of
from tarry.storage.postgres.statement import Op, bind, each, first, value, value_or_none


class PostgresQueues(PostgresRole):
    def __init__(self, clock: Clock, settings: StoreSettings, live_heads: LiveHeads) -> None:
        super().__init__(clock, settings)
        self._live_heads = live_heads

    @operation()
    def create(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
        created = yield from statements.create(check_queue_name(name), settings, self._now).run()
        if created is not None:
            return created
        if not exist_ok:
            raise InvalidState.queue_exists(name)
        return (yield from statements.info(name).run())

    def edit(self, name: str, settings: QueueSettings, *, only: frozenset[str]) -> PostgresOperation[QueueInfo]:
        params = statements.settings_params(settings)
        return self._sql("queues/edit", statements.known_info(name), name=name, only=sorted(only), **params)

    @operation()
    def rename(self, name: str, new_name: str) -> Op[QueueInfo]:
        names = {"name": name, "new_name": check_queue_name(new_name)}
        renamed = yield from bind("queues/rename", first(info_of), **names, now=self._now).run()
        if renamed is not None:
            return renamed
        yield from statements.info(name).run()
        raise InvalidState.queue_exists(new_name)

    def delete(self, name: str, *, force: bool) -> PostgresOperation[None]:
        """Block writers during the check, so that no message can be offered to a queue that is being deleted.

        With `force`, the messages are removed after the commit, in batches, so that writers of other queues do not wait. If
        this process stops before the end, the sweeper removes the rest.
        """
        leftovers_of: int | None = None

        def start(own: bool) -> Op[None]:  # noqa: FBT001
            nonlocal leftovers_of
            now = self._now
            yield from bind("queues/lock_timeout").run()
            yield from bind("queues/lock_writers").run()
            is_empty = yield from bind("queues/is_empty", value_or_none, name=name).run()
            if is_empty is None:
                raise UnknownQueue(name)
            if not is_empty and not force:
                raise InvalidState(f"queue {name!r} still has messages", hint="purge it first, or delete it with force")
            queue = yield from bind("queues/delete", value, name=name, has_leftovers=not is_empty, now=now).run()
            if is_empty:
                return
            if own:
                leftovers_of = queue
            else:  # all of it is part of the caller's transaction
                while (yield from statements.remove_leftovers(queue, now).run()):
                    pass

        def remove(own: bool) -> Op[int]:  # noqa: FBT001
            if leftovers_of is None:
                return 0
            return (yield from statements.remove_leftovers(leftovers_of, self._now).run())

        return PostgresOperation(start, atomic=True, then=PostgresOperation(remove))

    def info(self, name: str) -> PostgresOperation[QueueInfo]:
        return self._statement(lambda now: statements.info(name))

    def infos(self) -> PostgresOperation[list[QueueInfo]]:
        return self._sql("queues/info", each(info_of), name=None)

    def counts(self, name: str, *, limit: int = 10_000) -> PostgresOperation[Counts]:
        def steps(own: bool) -> Op[Counts]:  # noqa: FBT001
            make = partial(message_statements.counts, name, limit, self._now)
            return self._live_heads.scan(ScanKey("counts", name), make, own=own)

        return PostgresOperation(lambda own: in_known_queue(lambda: steps(own)))

    def pause(self, name: str, *, reason: str | None = None) -> PostgresOperation[QueueInfo]:
        return self._pause(name, paused=True, reason=reason)

    def resume(self, name: str) -> PostgresOperation[QueueInfo]:
        return self._pause(name, paused=False, reason=None)

    @operation()
    def _pause(self, name: str, *, paused: bool, reason: str | None) -> Op[QueueInfo]:
        pause = bind("queues/pause", first(info_of), name=name, paused=paused, reason=reason, now=self._now)
        changed = yield from pause.run()
        return changed if changed is not None else (yield from statements.info(name).run())

    def now(self) -> PostgresOperation[datetime]:
        return self._sql("queues/now", value)
