"""Calls the handler of a message, interrupts it where necessary, and settles the message by the result.

A message costs one task, which awaits the handler and then settles the message. Every handler has its own task and context:
its cancellation and its context variables affect no other message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.api.delivery import AsyncDelivery
from tarry.core.errors import LockTimeout, StoreUnavailable, UnknownQueue
from tarry.core.messages.failures import described
from tarry.core.messages.handler_results import Bury, HandlerReturn, Release, Snooze
from tarry.core.messages.model import Failure
from tarry.core.messages.outcomes import Settled
from tarry.services.loop import pause_s
from tarry.services.worker.handlers import DeadLetterHandler, Handler, Raised, UnreadablePayload
from tarry.services.worker.heartbeat import Heartbeat
from tarry.services.worker.job import Job, JobPhase
from tarry.services.worker.results import Handled, HandlerResult, Hooks
from tarry.services.worker.threads import Threads
from tarry.wire.payload import Content

_log = logging.getLogger("tarry.worker")
CLEAN_UP_S = 5.0
"""How long a cancelled handler may clean up."""
STOPPED_CLEAN_UP_S = 2.0
"""The same after the worker's grace period."""
_READ_BACK_S = 1.0


@dataclass(eq=False, slots=True)
class Dispatch:
    heartbeat: Heartbeat
    hooks: Hooks
    threads: Threads
    timer: Callable[[], float]
    blocking: Callable[[str], Queue[Any]]
    """Returns the blocking handle of a queue, for handlers in threads."""
    is_cancelled: bool = False
    """The worker was cancelled, so a cancelled handler did not cancel itself."""
    settler: Settler = field(init=False)

    def __post_init__(self) -> None:
        self.settler = Settler(self.heartbeat, self.hooks, self.timer)

    async def handle(self, job: Job) -> None:
        """Call the handler and settle the message. Returns after the handler has finished; its exceptions are results."""
        await self.settle(job, await self.call(job))

    async def settle(self, job: Job, returned: Any) -> None:
        if job.is_substituted:
            await asyncio.wait({job.substitute})
        else:
            await self._settle(job, returned)

    async def _settle(self, job: Job, returned: Any) -> None:
        await self.settler.settle(job, returned)
        if job.is_dead and job.handler.on_dead is not None:
            job.phase = JobPhase.DEAD
            failure = await self._failure_of(job.handler.on_dead, job.handled)
            job.phase = JobPhase.DONE
            if failure is not None:
                name = job.handler.on_dead.name
                _log.error("%s is a dead letter; its handler %s failed", job.delivery, name, exc_info=failure)

    async def _failure_of(self, on_dead: DeadLetterHandler, handled: Handled) -> BaseException | None:
        """The exception it raised, including `SystemExit`, which would stop the thread or the loop, and a cancellation."""
        try:
            if not on_dead.is_async:
                return await self.threads.run(_raised_by, on_dead.call, handled)
            await on_dead.call(handled)
        except GeneratorExit:
            raise
        except BaseException as error:
            return error
        return None

    def is_plain(self, job: Job, returned: Any) -> bool:
        """Whether only an ack is left to do, which may be batched."""
        handed = job.handed
        return (
            returned is None
            and handed.settled is None
            and handed.unconfirmed is None
            and job.lost is None
            and job.substitute is None
            and not job.is_over(self.timer())
        )

    def acked(self, job: Job, settled: Settled) -> None:
        """Record the result of a batched ack."""
        self.heartbeat.remove(job)
        job.result, job.phase = HandlerResult.ACKED, JobPhase.DONE
        self.settler.record(job, None, settled)
        if self.hooks.is_interested(job.result):
            job.context.run(self.hooks.finished, job.handled)  # hooks see the handler's context variables

    # The call

    async def call(self, job: Job) -> Any:
        """The handler's result or exception; or why it was not called, was stopped or timed out."""
        job.task = job.task or asyncio.current_task()
        job.started_s = self.timer()
        self.heartbeat.add(job)
        handler, delivery = job.handler, job.delivery
        payload = delivery.payload
        if type(payload) is Content:
            payload = handler.read(*payload)
            delivery = AsyncDelivery(job.queue, delivery.lease.decoded(payload), delivery.polled_s)
        if type(payload) is UnreadablePayload or type(payload) is Raised:
            return payload
        timer = None
        try:
            if handler.wants_delivery and not handler.is_async:
                job.handed = Delivery(self.blocking(job.queue.name), delivery.lease, delivery.polled_s)
            else:
                job.handed = delivery
            self.hooks.started(job.handed)
            args = (payload, job.handed) if handler.wants_delivery else (payload,)
            job.started, job.phase = True, JobPhase.CALLING
            if handler.timeout is not None:
                timer = asyncio.get_running_loop().call_later(handler.timeout.total_seconds(), self._time_out, job)
            if not handler.is_async:
                returned = await self.threads.run(self._in_thread, job, args)
            elif self.hooks.middleware:
                with ExitStack() as around:
                    self._enter(around, job)
                    returned = await handler.call(*args)
            else:
                returned = await handler.call(*args)
        except GeneratorExit:
            raise
        except BaseException as error:
            returned = Raised(error)
        finally:
            if job.phase is JobPhase.CALLING:
                job.phase = JobPhase.CALLED
            if timer is not None:
                timer.cancel()
        if job.task.cancelling():
            returned = await self._after_cancellation(job, returned)
        if job.timed_out and not (job.lost or job.is_stopped):
            return Raised(TimeoutError(f"the handler took longer than {handler.timeout}"))
        if isinstance(returned, type) and returned in (Snooze, Bury, Release):
            return Raised(
                TypeError(f"the handler returned the class {returned.__name__}; return {returned.__name__}(…)")
            )
        return returned

    def _in_thread(self, job: Job, args: tuple[Any, ...]) -> Any:
        try:
            with ExitStack() as around:
                self._enter(around, job)
                return job.handler.call(*args)
        except BaseException as error:
            return Raised(error)

    def _enter(self, around: ExitStack, job: Job) -> None:
        for middleware in self.hooks.middleware:
            around.enter_context(middleware(job.handed))

    async def _after_cancellation(self, job: Job, returned: Any) -> Any:
        """The task was cancelled: by `interrupt`, by the handler itself, or together with the worker."""
        is_pending = False
        try:
            await asyncio.sleep(0)  # lets a cancelled worker begin to stop
        except asyncio.CancelledError:
            is_pending = True  # the handler returned before its own cancellation was raised
        while job.task.uncancel():
            pass
        was_cancelled = isinstance(returned, Raised) and isinstance(returned.error, asyncio.CancelledError)
        if self.is_cancelled and was_cancelled:
            job.stop()
        if job.lost or job.is_stopped or job.timed_out:
            return Release() if was_cancelled else returned
        if was_cancelled or is_pending:
            return Raised(asyncio.CancelledError("the handler cancelled its own task"))
        return returned  # the handler caught the cancellation and continued

    # Interruptions

    def _time_out(self, job: Job) -> None:
        job.timed_out = True
        self.interrupt(job)

    def interrupt(self, job: Job) -> None:
        """Cancel a handler, the settle of a lost lease, or `on_dead` when the worker stops. A handler in a thread only sees
        `delivery.lost`."""
        job.handed.lost = True
        if job.phase is JobPhase.CALLING and job.substitute is None:
            job.substitute = asyncio.create_task(self._settle_without(job), name="tarry-interrupted")
            if job.handler.is_async:
                job.task.cancel()
        elif (job.phase is JobPhase.SETTLING and job.lost) or (job.phase is JobPhase.DEAD and job.is_stopped):
            job.settling_task.cancel()
        elif job.phase is JobPhase.DONE and job.is_stopped:
            job.task.cancel()  # it only waits for a handler that does not finish

    async def _settle_without(self, job: Job) -> None:
        """Settle the message of a handler that does not finish in time. The handler keeps its slot until it finishes."""
        if job.handler.is_async:
            await asyncio.wait({job.task}, timeout=STOPPED_CLEAN_UP_S if job.is_stopped else CLEAN_UP_S)
        if job.phase is JobPhase.CALLING:
            job.is_substituted = True
            late = Raised(TimeoutError(f"the handler took longer than {job.handler.timeout}"))
            await self._settle(job, Release() if job.lost or job.is_stopped else late)
            if job.is_stopped:
                job.task.cancel()


def _raised_by(call: Callable[[Handled], Any], handled: Handled) -> BaseException | None:
    try:
        call(handled)
    except BaseException as error:
        return error
    return None


class Settler:
    """Settles a message by the result of its handler while its lease is valid."""

    def __init__(self, heartbeat: Heartbeat, hooks: Hooks, timer: Callable[[], float]) -> None:
        self._heartbeat = heartbeat
        self._hooks = hooks
        self._timer = timer
        self._warned: set[str] = set()

    async def settle(self, job: Job, returned: Any) -> None:
        """Has no timeout: `Dispatch.interrupt` cancels it when the lease is lost."""
        job.phase = JobPhase.SETTLING
        try:
            settled = await self._settle_in_time(job, returned)
        except asyncio.CancelledError:
            if job.lost is None and job.is_stopped:
                raise
            asyncio.current_task().uncancel()  # pyright: ignore[reportOptionalMemberAccess]
            settled = None
            if job.lost is None:
                # Cancelled by a timer or a task that the handler left behind.
                job.is_repeated = True
                settled = await self._settle_in_time(job, returned)
        finally:
            self._heartbeat.remove(job)
            job.phase = JobPhase.DONE
        if job.is_repeated and settled is Settled.GONE:
            settled = Settled.DONE
        self.record(job, returned, settled)
        if job.result is HandlerResult.FAILED:
            await self._read_back(job)
        elif job.result is HandlerResult.BURIED:
            job.is_dead = True
        if self._hooks.is_interested(job.result):
            self._hooks.finished(job.handled)

    def record(self, job: Job, returned: Any, settled: Settled | None) -> None:
        if settled is not Settled.DONE:
            why = "the message no longer exists" if settled is Settled.GONE else "the lease was lost"
            job.result, job.detail = HandlerResult.LOST, job.detail or job.lost or why
        elif returned is not None or job.detail is not None:
            job.detail = returned.reason if isinstance(returned, (Bury, UnreadablePayload)) else None
        if job.result is HandlerResult.FAILED and job.error is None:
            job.detail = _rolled_back(job)
        job.took_s = self._timer() - job.started_s

    async def _read_back(self, job: Job) -> None:
        """Read whether a failed message is dead or when it is due again: the queue's attempt limit may apply."""
        try:
            async with asyncio.timeout(_READ_BACK_S):
                stored, version = await job.queue.read(job.delivery.key), job.delivery.version
                if stored is not None and stored.version == version:
                    job.next_at = stored.due_at
                else:
                    job.is_dead = await job.queue.dead_letters.get(version) is not None
        except (Exception, asyncio.CancelledError):
            level = logging.DEBUG if job.handler.on_dead is None else logging.WARNING  # `on_dead` is not called
            _log.log(level, "%s is settled, but whether it is dead is unknown", job.delivery)

    async def _settle_in_time(self, job: Job, returned: Any) -> Settled | None:
        """Retry until the lease expires while the database is unavailable or another transaction has locked the message."""
        handed, failures = job.handed, 0
        if isinstance(returned, Raised):
            job.error = returned.error
        if job.is_settled:
            job.result = HandlerResult.SETTLED
            return handed.settled
        if handed.unconfirmed is not None:
            job.prolonged(self._timer())  # reading the outcome of a settle needs a time limit, but no lease
        while job.lost is None and not job.is_over(self._timer()):
            try:
                if handed.unconfirmed is not None:  # the heartbeat may no longer watch it
                    async with asyncio.timeout(job.expires_s - self._timer()):
                        job.result, settled = await self._confirm(job, returned)
                elif returned is None:
                    job.result, (settled,) = HandlerResult.ACKED, await job.queue.leases.ack([job.delivery.lease_id])
                else:
                    job.result, settled = await self._verb(job, returned)
                return settled
            except TimeoutError:
                continue  # the heartbeat may have prolonged the lease
            except (StoreUnavailable, LockTimeout) as passing:
                failures += 1
                away = isinstance(passing, StoreUnavailable)
                job.detail = f"{'the database is unavailable' if away else 'it could not be settled'}: {passing}"
                await asyncio.sleep(pause_s(failures))
            except Exception as refused:
                job.detail = f"it could not be settled: {refused}"
                _log.debug("settling %s", job.delivery, exc_info=refused)
                break
        return None

    async def _verb(self, job: Job, returned: Any) -> tuple[HandlerResult, Settled]:
        lease_id, handler, queue = job.delivery.lease_id, job.handler, job.queue
        match returned:
            case Raised(error) if isinstance(error, handler.bury_on):
                return HandlerResult.BURIED, (await queue.leases.bury([lease_id], described(error)))[0]
            case Raised(error):
                failure = Failure(lease_id, described(error))
                return HandlerResult.FAILED, (await queue.leases.nack([failure], retry=handler.retry))[0]
            case UnreadablePayload(reason):
                return HandlerResult.BURIED, (await queue.leases.bury([lease_id], reason, reason="undecodable"))[0]
            case Bury(reason):
                return HandlerResult.BURIED, (await queue.leases.bury([lease_id], reason))[0]
            case Snooze(after=after, at=at):
                return HandlerResult.SNOOZED, (await queue.leases.release([lease_id], after=after, at=at))[0]
            case Release():
                return HandlerResult.RELEASED, (await queue.leases.release([lease_id]))[0]
            case _:
                self._warn(handler, returned)
                return HandlerResult.ACKED, (await queue.leases.ack([lease_id]))[0]

    async def _confirm(self, job: Job, returned: Any) -> tuple[HandlerResult, Settled]:
        """The result of a settle that may have been rolled back with the handler's transaction. If the lease still exists, it
        was rolled back, which counts as a failure unless the handler returned another result."""
        verb, delivery = job.handed.unconfirmed, job.delivery
        try:
            stored = await job.queue.read(delivery.key)
            if stored is None or stored.version != delivery.version or stored.lease_until is None:
                return HandlerResult.SETTLED, Settled.DONE
        except UnknownQueue:
            pass  # renamed or deleted since the poll: a settle resolves the former name, and its result decides
        if not isinstance(returned, (Raised, Bury, Snooze, Release)):
            failure = Failure(delivery.lease_id, _rolled_back(job))
            result = HandlerResult.FAILED
            settled = (await job.queue.leases.nack([failure], retry=job.handler.retry))[0]
        else:
            result, settled = await self._verb(job, returned)
        # Committed after the read. A released or failed message may already be leased by another consumer.
        if settled is Settled.GONE or (settled is Settled.LEASE_LOST and verb in ("nack", "release")):
            return HandlerResult.SETTLED, Settled.DONE
        return result, settled

    def _warn(self, handler: Handler, returned: HandlerReturn) -> None:
        if handler.name not in self._warned:
            self._warned.add(handler.name)
            kind = type(cast("object", returned)).__name__
            _log.warning("handler %s returned a %s, which is not stored; its messages are acked", handler.name, kind)


def _rolled_back(job: Job) -> str:
    return f"the handler's {job.handed.unconfirmed} was rolled back with its transaction"
