"""A handler that cannot work is refused when it is registered, with what would be right."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry import Bury, Rate, Retry, Snooze, Worker
from tarry.core.errors import InvalidInput
from tarry.services.worker.worker import WorkerSettings


@pytest.fixture
def worker() -> Worker:
    return Worker()


def refused(worker: Worker, call: Any, match: str, **options: Any) -> None:
    with pytest.raises(InvalidInput, match=match):
        worker.handler("orders", **options)(call)


def test_a_decorator_without_parentheses_is_refused(worker: Worker) -> None:
    with pytest.raises(InvalidInput, match="a handler needs the name of its queue"):

        @worker.handler  # pyright: ignore[reportArgumentType]
        def handle(order: int) -> None: ...


class TestSignatures:
    def test_the_payload_needs_a_type(self, worker: Worker) -> None:
        def handle(order) -> None: ...  # pyright: ignore[reportMissingParameterType]

        refused(worker, handle, "order has no type, so the payload cannot be decoded")

    def test_a_handler_takes_the_payload_and_perhaps_the_delivery(self, worker: Worker) -> None:
        def nothing() -> None: ...
        def three(a: int, b: int, c: int) -> None: ...
        def named(a: int, *, b: int) -> None: ...
        def both(a: int, *, app: tarry.App, b: int) -> None: ...

        for call in (nothing, three, named, both):
            refused(worker, call, r"a handler takes \(payload\) or \(payload, delivery\)")

    def test_parameters_with_a_default_are_the_handler_s_own(self, worker: Worker) -> None:
        @worker.handler("orders")
        def handle(order: int, retries: int = 3, *, verbose: bool = False) -> None: ...

        (source,) = worker.sources(WorkerSettings())
        assert not source.handler_of(None).wants_delivery

    def test_a_delivery_alone_is_no_payload(self, worker: Worker) -> None:
        def handle(delivery: tarry.Delivery[int]) -> None: ...
        async def awaits(delivery: tarry.AsyncDelivery[Any]) -> None: ...

        refused(worker, handle, "takes the payload first, and then the delivery")
        refused(worker, awaits, "takes the payload first, and then the delivery")

    def test_what_awaits_gets_a_delivery_that_awaits(self, worker: Worker) -> None:
        async def handle(order: int, delivery: tarry.Delivery[Any]) -> None: ...
        def blocks(order: int, delivery: tarry.AsyncDelivery[Any]) -> None: ...

        refused(worker, handle, "its delivery is a tarry.AsyncDelivery")
        refused(worker, blocks, "its delivery is a tarry.Delivery")

    def test_a_type_that_cannot_be_checked(self, worker: Worker) -> None:
        def handle(order: "Nowhere") -> None: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821, UP037

        refused(worker, handle, "the annotations of handler .* cannot be read: name 'Nowhere' is not defined")

    def test_methods_and_callable_objects_are_functions_too(self, worker: Worker) -> None:
        class Shop:
            async def handle(self, order: int) -> None: ...
            def __call__(self, order: int, delivery: tarry.Delivery[Any]) -> None: ...

        worker.handler("a")(Shop().handle)
        worker.handler("b")(Shop())
        a, b = (source.handler_of(None) for source in worker.sources(WorkerSettings()))
        assert (a.is_async, a.wants_delivery, b.is_async, b.wants_delivery) == (True, False, False, True)

    def test_not_a_function(self, worker: Worker) -> None:
        refused(worker, 17, "a handler is a function, not 17")


class TestPlaces:
    def test_two_handlers_for_the_same_thing(self, worker: Worker) -> None:
        def first(order: int) -> None: ...
        def second(order: int) -> None: ...

        worker.handler("orders")(first)
        refused(worker, second, "queue 'orders' has a handler already: .*first")
        worker.handler("orders", type="paid")(first)
        refused(worker, second, "type 'paid' of queue 'orders' has a handler already", type="paid")

    def test_options_of_the_queue_are_given_once_or_twice_the_same(self, worker: Worker) -> None:
        def handle(order: int) -> None: ...

        worker.handler("orders", type="a", concurrency=3, rate=Rate(5))(handle)
        worker.handler("orders", type="b", concurrency=3)(handle)
        refused(
            worker, handle, "queue 'orders' has concurrency=3 already, and now concurrency=4", type="c", concurrency=4
        )
        assert {source.options.concurrency for source in worker.sources(WorkerSettings())} == {3}

    def test_a_queue_with_a_handler_for_everything_is_polled_as_a_whole(self, worker: Worker) -> None:
        def typed(order: int) -> None: ...
        def rest(order: int) -> None: ...

        worker.handler("orders", type="a")(typed)
        worker.handler("mails", type="a")(typed)
        worker.handler("mails", type="b")(typed)
        worker.handler("orders")(rest)
        sources = worker.sources(WorkerSettings())
        assert [str(source) for source in sources] == ["orders", "mails/a", "mails/b"]
        orders = sources[0]
        assert [orders.handler_of(type).call for type in ("a", "b", None)] == [typed, rest, rest]

    def test_only_the_requested_queues(self, worker: Worker) -> None:
        def handle(order: int) -> None: ...

        for queue in "abc":
            worker.handler(queue)(handle)
        assert [source.queue for source in worker.sources(WorkerSettings(queues=("c", "a")))] == ["a", "c"]
        with pytest.raises(InvalidInput, match="no handler of this worker is for d"):
            worker.sources(WorkerSettings(queues=("a", "d")))
        with pytest.raises(InvalidInput, match="queues names no queue"):
            WorkerSettings(queues=())

    def test_a_worker_without_handlers_has_nothing_to_do(self, worker: Worker) -> None:
        with pytest.raises(InvalidInput, match="this worker has no handlers"):
            worker.sources(WorkerSettings())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"prefetch": -1}, "prefetch must not be negative"),
        ({"lease_for": timedelta(0)}, "lease_for must be between 1 second and 12 hours, not 0 s"),
        ({"rate": 5}, "rate must be a tarry.Rate"),
    ],
)
def test_options_that_make_no_sense(worker: Worker, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        worker.handler("orders", **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"retry": 5}, "retry must be a tarry.Retry"),
        ({"timeout": timedelta(0)}, "timeout must be positive"),
        ({"bury_on": (int,)}, "bury_on takes exception classes"),
        ({"type": ""}, "a type must not be empty"),
    ],
)
def test_options_of_a_handler_that_make_no_sense(worker: Worker, options: dict[str, Any], match: str) -> None:
    def handle(order: int) -> None: ...

    refused(worker, handle, match, **options)


def test_an_unknown_event_is_refused(worker: Worker) -> None:
    with pytest.raises(InvalidInput, match="events of a worker are started and finished, not 'ended'"):
        worker.on("ended")(print)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_snooze_has_a_time(worker: Worker) -> None:
    for bad in ({}, {"after": timedelta(seconds=-1)}, {"after": timedelta(1), "at": tarry}):
        with pytest.raises(InvalidInput):
            Snooze(**bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="the reason of Bury must be text"):
        Bury(17)  # pyright: ignore[reportArgumentType]


def test_the_limit_of_a_poll_is_the_most_that_its_handlers_would_try(worker: Worker) -> None:
    def handle(order: int) -> None: ...

    worker.handler("orders", retry=Retry.at_once(max_attempts=3))(handle)
    worker.handler("orders", type="a", retry=Retry.at_once(max_attempts=5))(handle)
    worker.handler("mails", retry=Retry.at_once(max_attempts=3))(handle)
    worker.handler("mails", type="a")(handle)
    assert [source.max_attempts for source in worker.sources(WorkerSettings())] == [5, None]
