"""One delivery from start to end: decode, call the handler, and settle as it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, cast

from tarry.core.answers import Answer, Bury, Release, Snooze
from tarry.core.errors import HeldUp, InvalidPayload, StoreUnavailable, UnknownQueue
from tarry.core.failures import described
from tarry.core.messages import Failure
from tarry.core.outcomes import Settled
from tarry.handles.aio import AsyncQueue
from tarry.handles.delivery import AsyncDelivery, Delivery, Settling
from tarry.services.handlers import Handler, Raw
from tarry.services.leases import Held, Leases
from tarry.services.loop import pause_s
from tarry.services.reports import Ending, Handled, Hooks
from tarry.services.threads import Threads

_log = logging.getLogger("tarry.worker")
CLEAN_UP_S = 5.0
"""How long a cancelled handler may take to put its things away."""
STOPPED_CLEAN_UP_S = 2.0
"""… when the worker is being stopped, after its grace."""


class Stopped(NamedTuple):
    """Why a handler was not waited for any longer."""

    why: str
    lost: bool
    """The lease is lost: nothing may be settled. Else the worker is being shut down."""


class Raised(NamedTuple):
    error: BaseException


class Job:
    """A message on its way through a handler."""

    def __init__(self, queue: AsyncQueue[Raw], delivery: AsyncDelivery[Raw], handler: Handler) -> None:
        self.queue = queue
        self.raw = delivery
        self.handler = handler
        self.handed: AsyncDelivery[Any] | Delivery[Any] = delivery
        self.stopped: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self.held = Held(queue, delivery, self.lose)
        self.call: asyncio.Future[Any] | None = None
        self.settled = False
        self.abandoned = False

    def lose(self, why: str) -> None:
        self._stop(Stopped(why, lost=True))

    def stop(self) -> None:
        """The worker ends: what is under way is cancelled and given back, and nobody waits for a thread."""
        self.abandoned = True
        self._stop(Stopped("the worker was stopped", lost=False))

    @property
    def lost(self) -> Stopped | None:
        return self.stopped.result() if self.stopped.done() and self.stopped.result().lost else None

    def _stop(self, stopped: Stopped) -> None:
        self.handed.lost = True
        if not self.stopped.done():
            self.stopped.set_result(stopped)


class Dispatch:
    def __init__(
        self,
        leases: Leases,
        hooks: Hooks,
        threads: Threads,
        timer: Callable[[], float],
        blocking: Callable[[str], Settling],
    ) -> None:
        """`blocking`: the same queue for handlers in threads."""
        self._leases = leases
        self._hooks = hooks
        self._threads = threads
        self._timer = timer
        self._blocking = blocking
        self._told: set[str] = set()

    async def handle(self, job: Job) -> Handled:
        """Never raises: whatever happens is an ending. Returns when the handler is out of the way, too."""
        started_s = self._timer()
        self._leases.add(job.held)
        try:
            handled = await self._settle(job, await self._answer(job), started_s)
        finally:
            self._leases.remove(job.held)
            job.settled = True
        self._hooks.finished(handled)
        if job.call is not None and not job.call.done() and not job.abandoned:
            await asyncio.wait([job.call])  # it keeps its place until it has really ended
        return handled

    def _call(self, job: Job, payload: Any) -> asyncio.Future[Any]:
        handler, raw = job.handler, job.raw
        lease = raw.lease._replace(payload=payload)
        if handler.is_async or not handler.wants_delivery:
            job.handed = AsyncDelivery(job.queue, lease, raw.asked_s)
        else:
            job.handed = Delivery(self._blocking(job.queue.name), lease, raw.asked_s)
        job.held.handed = job.handed
        self._hooks.started(job.handed)
        args = (payload, job.handed) if handler.wants_delivery else (payload,)
        if not handler.is_async:
            return self._threads.run(lambda: self._blockingly(job, args))
        return asyncio.ensure_future(self._awaited(job, args))

    async def _awaited(self, job: Job, args: tuple[Any, ...]) -> Any:
        try:
            with ExitStack() as around:
                self._enter(around, job)
                return await job.handler.call(*args)
        except asyncio.CancelledError as error:
            if job.stopped.done() or asyncio.current_task().cancelling():  # pyright: ignore[reportOptionalMemberAccess]
                raise
            return Raised(error)  # something inside the handler was cancelled: that is the handler's failure
        except BaseException as error:
            return Raised(error)

    def _blockingly(self, job: Job, args: tuple[Any, ...]) -> Any:
        try:
            with ExitStack() as around:
                self._enter(around, job)
                return job.handler.call(*args)
        except BaseException as error:
            return Raised(error)

    def _enter(self, around: ExitStack, job: Job) -> None:
        for middleware in self._hooks.middleware:
            around.enter_context(middleware(job.handed))

    async def _answer(self, job: Job) -> Any:
        """What the handler answered; or why it could not be called, was stopped, or took too long."""
        try:
            call = job.call = self._call(job, job.handler.decode(*job.raw.payload))
        except InvalidPayload as error:
            return Unreadable(str(error))
        except Exception as error:
            return Raised(error)
        timeout = job.handler.timeout
        await asyncio.wait(
            {call, job.stopped},
            timeout=None if timeout is None else timeout.total_seconds(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if call.cancelled():
            return Raised(asyncio.CancelledError("the handler cancelled its own task"))
        if call.done():
            return _checked(call.result())
        job.handed.lost = True  # a handler in a thread can only be told
        if job.handler.is_async:
            call.cancel()
            await asyncio.wait({call}, timeout=STOPPED_CLEAN_UP_S if job.abandoned else CLEAN_UP_S)
        if not job.stopped.done():
            return Raised(TimeoutError(f"the handler took longer than {timeout}"))
        ended = call.done() and not call.cancelled()
        return _checked(call.result()) if ended else job.stopped.result()

    async def _settle(self, job: Job, answer: Any, started_s: float) -> Handled:
        ending, error, detail = Ending.LOST, None, None
        if isinstance(answer, Raised):
            error = answer.error
        settled: Settled | None = None
        job.held.settling = True
        if job.held.is_settled:
            ending, settled = Ending.SETTLED, job.handed.settled
        else:
            failures = 0
            if job.handed.unconfirmed is not None:
                job.held.began(self._timer())  # to learn what came of a settle takes no lease, only an end
            while job.lost is None and not job.held.is_over(self._timer()):
                try:
                    async with asyncio.timeout(job.held.expires_s - self._timer()):
                        ending, settled = await (self._confirm if job.handed.unconfirmed else self._say)(job, answer)
                    break
                except TimeoutError:
                    continue  # the heart-beat may have prolonged it meanwhile
                except (StoreUnavailable, HeldUp) as passing:
                    failures += 1
                    away = isinstance(passing, StoreUnavailable)
                    detail = f"{'the database is away' if away else 'it could not be settled'}: {passing}"
                    await asyncio.wait({job.stopped}, timeout=pause_s(failures))
                except Exception as refused:
                    detail = f"it could not be settled: {refused}"
                    _log.debug("settling %s", job.raw, exc_info=refused)
                    break
        if settled is Settled.DONE:
            detail = answer.reason if isinstance(answer, (Bury, Unreadable)) else None
            if ending is Ending.FAILED and error is None:
                detail = _rolled_back(job)
        else:
            why = "it was not there any more" if settled is Settled.GONE else "the lease was lost"
            ending, detail = Ending.LOST, detail or (job.lost.why if job.lost else why)
        return Handled(
            delivery=job.handed,
            queue=job.queue.name,
            handler=job.handler.name,
            ending=ending,
            took_s=self._timer() - started_s,
            started=job.call is not None,
            error=error,
            detail=detail,
        )

    async def _say(self, job: Job, answer: Any) -> tuple[Ending, Settled]:
        hold, handler, queue = job.raw.hold, job.handler, job.queue
        match answer:
            case Raised(error) if isinstance(error, handler.bury_on):
                return Ending.BURIED, (await queue.bury_many([hold], described(error)))[0]
            case Raised(error):
                failure = Failure(hold, described(error))
                return Ending.FAILED, (await queue.nack_many([failure], retry=handler.retry))[0]
            case Unreadable(reason):
                return Ending.BURIED, (await queue.bury_many([hold], reason, reason="undecodable"))[0]
            case Bury(reason):
                return Ending.BURIED, (await queue.bury_many([hold], reason))[0]
            case Snooze(after=after, at=at):
                return Ending.SNOOZED, (await queue.release_many([hold], after=after, at=at))[0]
            case Release() | Stopped():
                return Ending.RELEASED, (await queue.release_many([hold]))[0]
            case _:
                self._remark(handler, answer)
                return Ending.ACKED, (await queue.ack_many([hold]))[0]

    async def _confirm(self, job: Job, answer: Any) -> tuple[Ending, Settled]:
        """What came of a settle that may have been rolled back with the handler's transaction: while the lease is valid,
        nothing did. Then it counts as a failure, unless the handler answers otherwise."""
        verb, raw = job.handed.unconfirmed, job.raw
        try:
            found = await job.queue.read(raw.key)
            if found is None or found.version != raw.version or found.lease_until is None:
                return Ending.SETTLED, Settled.DONE
        except UnknownQueue:
            pass  # renamed since the lease, or deleted: a settle follows the former name, and its answer decides
        if isinstance(answer, (Raised, Bury, Snooze, Release, Stopped)):
            ending, settled = await self._say(job, answer)
        else:
            failure = Failure(raw.hold, _rolled_back(job))
            ending, settled = Ending.FAILED, (await job.queue.nack_many([failure], retry=job.handler.retry))[0]
        # Committed meanwhile. A message that was given back or failed may be in other hands already.
        if settled is Settled.GONE or (settled is Settled.LEASE_LOST and verb in ("nack", "release")):
            return Ending.SETTLED, Settled.DONE
        return ending, settled

    def _remark(self, handler: Handler, answer: Answer) -> None:
        if answer is not None and handler.name not in self._told:
            self._told.add(handler.name)
            kind = type(cast("object", answer)).__name__
            _log.warning("handler %s returned a %s, which nobody keeps; its messages are acked", handler.name, kind)


class Unreadable(NamedTuple):
    reason: str


def _rolled_back(job: Job) -> str:
    return f"the handler's {job.handed.unconfirmed} was rolled back with its transaction"


def _checked(answer: Any) -> Any:
    if isinstance(answer, type) and answer in (Snooze, Bury, Release):
        return Raised(TypeError(f"the handler returned the class {answer.__name__}; return {answer.__name__}(…)"))
    return answer
