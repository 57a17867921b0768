"""The heartbeat: prolongs the leases of running handlers and reports lost leases.

Lease times are measured from the local monotonic time of the request, never by a wall clock. So a lease can only be longer
than assumed, and a suspended process detects expired leases before the database confirms it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from tarry.core.errors import TarryError
from tarry.core.messages.outcomes import Settled
from tarry.services.loop import Loop
from tarry.services.worker.job import AGAIN, Job, JobPhase

_log = logging.getLogger("tarry.worker")
_LATE = 1 / 6
"""A scan that is late by this share of a lease is logged: after a few more delays, leases are lost."""
_IDLE_S = 1.0


class Heartbeat:
    """Scans all held leases when the next one is due, instead of using one timer per lease."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._held: set[Job] = set()
        self._beats: set[asyncio.Task[None]] = set()
        self._next_scan_s = timer()
        self.prolonged = 0
        """Leases prolonged so far."""
        self.loop = Loop("heartbeat", self.run_once, every=timedelta(seconds=_IDLE_S))

    def add(self, job: Job) -> None:
        self._held.add(job)
        if job.next_s < self._next_scan_s:
            self.loop.wake()

    def remove(self, job: Job) -> None:
        self._held.discard(job)

    async def run_once(self) -> float:
        """Prolong due leases and report expired ones. Returns the seconds until the next scan."""
        now_s = self._timer()
        self._held = {job for job in self._held if not job.is_settled}
        self._log_delay(now_s - self._next_scan_s)
        due: dict[tuple[str, float], list[Job]] = {}
        for job in [job for job in self._held if not job.is_beating or job.is_over(now_s)]:
            if job.is_over(now_s):
                self._lose(job, "the lease ran out before it could be prolonged")
            elif now_s >= job.next_s:
                job.is_beating = True
                due.setdefault((job.queue.name, job.span_s), []).append(job)
        for (_, span_s), group in due.items():
            # Not awaited here: while the database is unavailable, this loop must notice every lease that expires.
            beat = asyncio.create_task(self._prolong(group, span_s), name="tarry-heartbeat")
            self._beats.add(beat)
            beat.add_done_callback(self._beats.discard)
        # A pending beat may fail and need a retry, but does not wake this loop.
        moments = [
            min(now_s + job.span_s * AGAIN if job.is_beating else job.next_s, job.expires_s) for job in self._held
        ]
        self._next_scan_s = min(moments, default=now_s + _IDLE_S)
        return max(0.0, self._next_scan_s - now_s)

    async def _prolong(self, group: list[Job], span_s: float) -> None:
        sent_s = self._timer()
        try:
            # With an explicit duration: the queue's setting may have changed since the poll.
            results = await group[0].queue.leases.touch(
                [job.delivery.lease_id for job in group], timedelta(seconds=span_s)
            )
        except TarryError as error:
            _log.warning("leases of queue %s could not be prolonged yet: %s", group[0].queue.name, error)
            for job in group:
                job.next_s = self._timer() + span_s * AGAIN
            return
        finally:
            for job in group:
                job.is_beating = False
        for job, result in zip(group, results, strict=True):
            if job not in self._held or job.is_settled:
                continue
            if result is Settled.DONE:
                job.prolonged(sent_s)
                self.prolonged += 1
            elif result is Settled.BUSY:
                job.busy(sent_s)
            elif job.handed.unconfirmed is not None:
                self._held.discard(job)  # settled by its handler, which may continue
            elif job.phase < JobPhase.SETTLING:  # else the result of the settle decides
                gone = "it was settled, dropped or buried by another process"
                self._lose(job, gone if result is Settled.GONE else "another consumer has it, or it was offered again")

    def _log_delay(self, late_s: float) -> None:
        if self._held and late_s > min(job.span_s for job in self._held) * _LATE:
            queues = ", ".join(sorted({job.queue.name for job in self._held}))
            _log.warning(
                "nothing ran here for %.1f s, not even the heartbeat of leases (%s): if an async def handler blocks, "
                "make it a def, which runs in a thread",
                late_s,
                queues,
            )

    def _lose(self, job: Job, why: str) -> None:
        self._held.discard(job)
        job.lose(why)
