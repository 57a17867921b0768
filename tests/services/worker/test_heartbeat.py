"""The heartbeat, by a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.messages.model import LeaseId
from tarry.core.messages.outcomes import Settled
from tarry.services.worker.heartbeat import Heartbeat
from tarry.services.worker.job import Job, JobPhase

DONE, LEASE_LOST, GONE = Settled.DONE, Settled.LEASE_LOST, Settled.GONE


class Queue:
    """Returns the outcome that the test sets for touches, and records them."""

    def __init__(self, name: str = "orders") -> None:
        self.name = name
        self.touches: list[tuple[list[str], timedelta | None]] = []
        self.outcome: Callable[[], Any] = lambda: DONE

    @property
    def leases(self) -> Queue:
        return self

    async def touch(self, lease_ids: Sequence[LeaseId], lease_for: timedelta | None = None) -> list[Settled]:
        self.touches.append(([lease_id.key for lease_id in lease_ids], lease_for))
        return [self.outcome() for _ in lease_ids]


class Delivery:
    def __init__(self, key: str, polled_s: float, lease_s: float) -> None:
        self.lease_id = LeaseId(key, uuid4())
        self.polled_s = polled_s
        self.lease_for = timedelta(seconds=lease_s)
        self.settled: Settled | None = None
        self.unconfirmed: str | None = None


class Beating:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.lost: list[tuple[str, str]] = []
        self.leases = Heartbeat(lambda: self.now_s)

    def add_job(self, queue: Any, key: str, *, polled_s: float = 100.0, lease_s: float = 30.0) -> Job:
        delivery: Any = Delivery(key, polled_s, lease_s)
        handler: Any = None
        held = Job(queue, delivery, handler, lambda job: self.lost.append((key, str(job.lost))))
        self.leases.add(held)
        return held

    async def beat_at(self, now_s: float) -> float:
        self.now_s = now_s
        rest_s = await self.leases.run_once()
        for _ in range(3):  # the beat is a task of its own
            await asyncio.sleep(0)
        return rest_s


def test_a_lease_is_prolonged_at_a_third_and_all_of_a_queue_together() -> None:
    async def test() -> None:
        beating, orders, mails = Beating(), Queue(), Queue("mails")
        for key in "abc":
            beating.add_job(orders, key)
        beating.add_job(mails, "m", lease_s=60.0)
        assert await beating.beat_at(100.0) == 10.0
        assert await beating.beat_at(109.9) > 0
        assert orders.touches == []
        await beating.beat_at(110.0)
        assert [(sorted(keys), lease_for) for keys, lease_for in orders.touches] == [
            (["a", "b", "c"], timedelta(seconds=30))
        ]
        assert mails.touches == []
        assert await beating.beat_at(110.0) == 10.0  # the next of all is again orders' or mails', at 120

    asyncio.run(test())


def test_a_beat_counts_from_when_it_was_sent() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        held = beating.add_job(orders, "a")

        def slow() -> Settled:
            beating.now_s += 7
            return DONE

        orders.outcome = slow
        await beating.beat_at(110.0)
        assert (held.expires_s, held.next_s) == (140.0, 120.0)

    asyncio.run(test())


def test_a_job_that_lost_its_lease_is_cancelled_and_the_others_are_not() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        beating.add_job(orders, "a")
        beating.add_job(orders, "b")
        outcomes = iter([LEASE_LOST, DONE])
        orders.outcome = lambda: next(outcomes)
        await beating.beat_at(110.0)
        assert len(beating.lost) == 1
        assert "another consumer has it" in beating.lost[0][1]

    asyncio.run(test())


def test_a_lease_that_could_not_be_prolonged_in_time_is_lost_without_a_reply() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        held = beating.add_job(orders, "a")

        def away() -> Settled:
            raise StoreUnavailable("away")

        orders.outcome = away
        await beating.beat_at(110.0)
        assert beating.lost == []
        assert held.next_s == 112.5  # again soon
        await beating.beat_at(112.5)
        assert len(orders.touches) == 2
        await beating.beat_at(129.9)
        assert beating.lost == []
        await beating.beat_at(130.0)
        assert beating.lost == [("a", "the lease ran out before it could be prolonged")]

    asyncio.run(test())


def test_a_beat_that_hangs_does_not_hide_that_the_lease_ran_out() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        never = asyncio.Event()

        async def hang(lease_ids: Any, lease_for: Any = None) -> list[Settled]:
            await never.wait()
            return [DONE] * len(lease_ids)

        orders.touch = hang  # pyright: ignore[reportAttributeAccessIssue]
        beating.add_job(orders, "a")
        assert await beating.beat_at(110.0) == 2.5  # another beat may be wanted by then
        await beating.beat_at(130.0)
        assert [key for key, _ in beating.lost] == ["a"]
        never.set()
        await beating.beat_at(131.0)
        assert len(beating.lost) == 1

    asyncio.run(test())


def test_a_process_that_was_frozen_knows_at_once() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        beating.add_job(orders, "a")
        await beating.beat_at(500.0)
        assert (len(beating.lost), orders.touches) == (1, [])

    asyncio.run(test())


def test_a_handler_that_blocks_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        beating.add_job(orders, "a")
        assert await beating.beat_at(100.0) == 10.0
        await beating.beat_at(114.9)  # four seconds late: the machine is busy
        assert caplog.text == ""
        await beating.beat_at(124.0)
        assert "nothing ran here for 6.6 s" in caplog.text
        assert "orders" in caplog.text
        assert beating.lost == []

    asyncio.run(test())


def test_a_job_that_is_being_settled_gets_the_loss_from_its_settle() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        held = beating.add_job(orders, "a")
        held.phase = JobPhase.SETTLING
        orders.outcome = lambda: GONE
        await beating.beat_at(110.0)
        assert beating.lost == []

    asyncio.run(test())


def test_without_leases_no_touch_is_sent() -> None:
    async def test() -> None:
        beating, orders = Beating(), Queue()
        beating.leases.remove(beating.add_job(orders, "a"))
        assert await beating.beat_at(500.0) == 1.0
        assert orders.touches == []

    asyncio.run(test())


def test_while_a_beat_is_under_way_it_looks_again_in_time_for_another() -> None:
    async def test() -> None:
        beating, queue = Beating(), Queue()
        replied = asyncio.Event()

        async def slow(lease_ids: Sequence[LeaseId], lease_for: timedelta | None = None) -> list[Settled]:
            await replied.wait()
            raise StoreUnavailable("away")

        queue.touch = slow  # pyright: ignore[reportAttributeAccessIssue]
        beating.add_job(queue, "a", lease_s=600.0)
        assert await beating.beat_at(300.0) == 50.0  # not 400, when the lease would be over
        replied.set()
        assert await beating.beat_at(350.0) == 50.0
        assert await beating.beat_at(400.0) == 50.0
        assert beating.lost == []

    asyncio.run(test())


def test_a_busy_message_is_not_lost_however_long_it_is_busy() -> None:
    async def test() -> None:
        beating, queue = Beating(), Queue()
        beating.add_job(queue, "a")
        queue.outcome = lambda: Settled.BUSY
        now_s = 110.0
        while now_s < 400.0:
            now_s += max(0.1, await beating.beat_at(now_s))
        assert beating.lost == []
        queue.outcome = lambda: LEASE_LOST
        await beating.beat_at(now_s)
        assert [key for key, _ in beating.lost] == ["a"]

    asyncio.run(test())


def test_a_late_busy_reply_does_not_revive_a_lease_that_has_ended() -> None:
    async def test() -> None:
        beating, queue = Beating(), Queue()
        beating.add_job(queue, "a")

        def frozen() -> Settled:
            beating.now_s += 600.0  # the process stood still while the answer lay in its socket
            return Settled.BUSY

        queue.outcome = frozen
        await beating.beat_at(110.0)
        await beating.beat_at(beating.now_s)
        assert [key for key, _ in beating.lost] == ["a"]

    asyncio.run(test())


def test_what_its_handler_has_settled_is_not_prolonged_and_not_lost() -> None:
    async def test() -> None:
        beating, queue = Beating(), Queue()
        settled, doubtful = beating.add_job(queue, "settled"), beating.add_job(queue, "doubtful")
        settled.handed.settled = DONE
        doubtful.handed.settled, doubtful.handed.unconfirmed = DONE, "ack"
        queue.outcome = lambda: GONE
        await beating.beat_at(110.0)
        await beating.beat_at(500.0)
        assert [keys for keys, _ in queue.touches] == [["doubtful"]]
        assert beating.lost == []

    asyncio.run(test())
