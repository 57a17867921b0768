"""Bad offers and polls: refused with what is wrong and what is allowed, and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from tarry import Conflict, Message, Queue
from tarry.app import App
from tarry.core.errors import InvalidInput, InvalidPayload, UnknownQueue
from tests.kit.backends import SETTINGS
from tests.kit.clocks import START
from tests.kit.steps import MINUTE, SECOND, numbers, seen

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 - naive on purpose
OK: dict[str, Any] = {"key": "a", "payload": 1}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


KEYS = {
    "empty": ("", "empty"),
    "201 characters": ("k" * 201, "200"),
    "NUL": ("a\x00b", "NUL"),
    "lone surrogate": ("a\ud800", "surrogate"),
    "a number": (17, "text"),
    "bytes": (b"a", "text"),
}
TIMES = {
    "naive": ({"at": NAIVE}, "time zone"),
    "a date": ({"at": date(2024, 1, 1)}, "datetime"),
    "text as at": ({"at": "2024-01-01T00:00:00Z"}, "datetime"),
    "a number as at": ({"at": 1704067200}, "datetime"),
    "both": ({"at": START, "after": SECOND}, "not both"),
    "negative": ({"after": -SECOND}, "10 years"),
    "a microsecond too early": ({"after": timedelta(microseconds=-1)}, "10 years"),
    "11 years": ({"after": timedelta(days=11 * 366)}, "10 years"),
    "the longest timedelta": ({"after": timedelta.max}, "10 years"),
    "a number as after": ({"after": 60}, "timedelta"),
    "before the calendar": ({"at": datetime.min.replace(tzinfo=EAST)}, "outside of the years"),
    "after the calendar": ({"at": datetime.max.replace(tzinfo=WEST)}, "outside of the years"),
}
OPTIONS = {
    "priority -1": ({"priority": -1}, "0.*9"),
    "priority 10": ({"priority": 10}, "0.*9"),
    "priority True": ({"priority": True}, "0.*9"),
    "priority 1.5": ({"priority": 1.5}, "0.*9"),
    "priority text": ({"priority": "high"}, "0.*9"),
    "priority huge": ({"priority": 10**30}, "0.*9"),
    "lease half a second": ({"lease_for": SECOND / 2}, "1 second"),
    "lease 13 hours": ({"lease_for": timedelta(hours=13)}, "12 hours"),
    "lease number": ({"lease_for": 30}, "timedelta"),
    "attempts 0": ({"max_attempts": 0}, "1 to"),
    "attempts -3": ({"max_attempts": -3}, "1 to"),
    "attempts True": ({"max_attempts": True}, "whole number"),
    "attempts 2.5": ({"max_attempts": 2.5}, "whole number"),
    "attempts huge": ({"max_attempts": 2**31}, "1,000,000"),
    "type empty": ({"type": ""}, "type"),
    "type long": ({"type": "t" * 101}, "100"),
    "type NUL": ({"type": "\x00"}, "NUL"),
    "type surrogate": ({"type": "\udfff"}, "surrogate"),
    "type number": ({"type": 3}, "text"),
    "headers list": ({"headers": ["a"]}, "headers"),
    "headers number": ({"headers": {"a": 1}}, "text"),
    "headers no name": ({"headers": {"": "v"}}, "empty"),
    "headers NUL": ({"headers": {"a": "\x00"}}, "NUL"),
    "headers surrogate": ({"headers": {"a": "\ud83d"}}, "surrogate"),
    "headers long": ({"headers": {f"h{i}": "v" * 1000 for i in range(9)}}, "8,192"),
    "retry text": ({"retry": "often"}, "[Rr]etry"),
    "retry number": ({"retry": 3}, "[Rr]etry"),
    "conflict text": ({"conflict": "replace"}, "[Cc]onflict"),
}
PAYLOADS = {
    "NaN": (float("nan"), "JSON"),
    "infinity": (float("inf"), "JSON"),
    "minus infinity inside": ({"a": [1.0, float("-inf")]}, "JSON"),
    "lone surrogate": ({"a": "\ud800"}, "JSON|Unicode"),
    "lone surrogate in a key": ({"\ud800": 1}, "JSON|Unicode"),
    "lone surrogate as text": ("\ud800", "Unicode"),
    "65 levels": (nested(65), "64 levels"),
    "10,000 levels": (nested(10_000), "JSON|levels"),
    "a circle": (endless(), "JSON|levels"),
    "too large": (b"x" * (SETTINGS.payload_limit + 1), "262,145.*262,144"),
    "too large as text": ("é" * (SETTINGS.payload_limit // 2) + "e", "262,145.*262,144"),
    "a huge int": (10**5000, "JSON"),
    "an object": (object(), "JSON"),
    "a function inside": ([len], "JSON"),
    "a complex number": (1j, "JSON"),
}


def ids(cases: dict[str, Any]) -> Any:
    return pytest.mark.parametrize(("given", "problem"), list(cases.values()), ids=list(cases))


@pytest.fixture(autouse=True)
def nothing_is_stored(app: App, queue: Queue[Any]) -> Iterator[None]:
    """Whatever a test offers, the live message that was there is all there is."""
    queue.offer("there", "before", after=MINUTE)
    before = seen(queue, "there")
    yield
    assert seen(queue, "there") == before
    assert numbers(app, queue) == (1, 0, 0, 0)
    assert not queue.contains("a")


class Ways:
    """Every way in: one message, a batch, and a batch in which the others are fine."""

    @staticmethod
    def all(queue: Queue[Any], given: dict[str, Any], problem: str, error: type[InvalidInput] = InvalidInput) -> None:
        rest = {name: value for name, value in given.items() if name not in ("key", "payload")}
        with pytest.raises(error, match=problem):
            queue.offer(given["key"], given["payload"], **rest)
        with pytest.raises(error, match=problem):
            queue.offer_many([Message(**given)])
        with pytest.raises(error, match=problem):
            queue.offer_many([Message(key="a", payload=0), Message(**given), Message(key="there", payload="after")])


class TestOffers:
    @ids(KEYS)
    def test_keys(self, queue: Queue[Any], given: Any, problem: str) -> None:
        Ways.all(queue, OK | {"key": given}, problem)

    @ids(TIMES)
    def test_times(self, queue: Queue[Any], given: dict[str, Any], problem: str) -> None:
        Ways.all(queue, OK | given, problem)

    @ids(OPTIONS)
    def test_options(self, queue: Queue[Any], given: dict[str, Any], problem: str) -> None:
        Ways.all(queue, OK | given, problem)

    @ids(PAYLOADS)
    def test_payloads(self, queue: Queue[Any], given: Any, problem: str) -> None:
        Ways.all(queue, {"key": "a", "payload": given}, problem, InvalidPayload)

    @pytest.mark.parametrize("value", [Decimal("NaN"), {float("nan"): 1}, {(1, 2): 3}], ids=repr)
    def test_a_value_without_a_json_form_is_rejected_or_round_trips_equal(self, queue: Queue[Any], value: Any) -> None:
        """Never stored as something else."""
        try:
            queue.offer("other", value, after=MINUTE)
        except InvalidPayload:
            return
        stored = seen(queue, "other").payload
        queue.drop("other")
        assert repr(stored) in (repr(value), repr(str(value)))

    def test_can_update_false_goes_with_keep_only(self, queue: Queue[Any]) -> None:
        with pytest.raises(InvalidInput, match="can_update"):
            queue.offer("a", 1, can_update=False, conflict=Conflict.replace())

    @pytest.mark.parametrize(
        "wrong", [{"key": "a", "payload": 1}, ("a", 1), "a", None, 1, Message], ids=lambda wrong: type(wrong).__name__
    )
    def test_only_messages_go_into_a_batch(self, queue: Queue[Any], wrong: Any) -> None:
        with pytest.raises(InvalidInput, match="Message"):
            queue.offer_many([Message(key="a", payload=1), wrong])

    @pytest.mark.parametrize("wrong", [None, 17, Message(key="a", payload=1)], ids=lambda wrong: type(wrong).__name__)
    def test_a_batch_is_something_to_go_through(self, queue: Queue[Any], wrong: Any) -> None:
        with pytest.raises((InvalidInput, TypeError)):
            queue.offer_many(wrong)


class TestTypedQueues:
    @pytest.mark.parametrize(
        ("kind", "payload"), [(int, "text"), (str, 1), (bytes, "text"), (list[int], ["x"])], ids=lambda case: repr(case)
    )
    def test_a_payload_of_another_type_is_refused(self, app: App, queue: Queue[Any], kind: Any, payload: Any) -> None:
        with pytest.raises(InvalidPayload):
            app.queue(queue.name, kind).offer("a", payload)

    def test_a_type_that_cannot_be_checked_is_refused(self, app: App, queue: Queue[Any]) -> None:
        strange: Any = dict[int, complex] | list[object] | type
        with pytest.raises(InvalidPayload, match="cannot be checked"):
            app.queue(queue.name, strange)


class TestPolls:
    @pytest.mark.parametrize("n", [True, 1.5, "1", None], ids=repr)
    def test_counts(self, queue: Queue[Any], n: Any) -> None:
        with pytest.raises(InvalidInput, match="whole number"):
            queue.try_poll_many(n)

    @pytest.mark.parametrize("lease_for", [SECOND / 2, timedelta(hours=13), -SECOND, timedelta.max])
    def test_leases(self, queue: Queue[Any], lease_for: timedelta) -> None:
        for poll in (queue.try_poll, queue.poll):
            with pytest.raises(InvalidInput, match="1 second and 12 hours"):
                poll(lease_for=lease_for)

    @pytest.mark.parametrize("type_name", ["", "t" * 101, "\x00", "\ud800", 7])
    def test_types(self, queue: Queue[Any], type_name: Any) -> None:
        for poll in (queue.try_poll, queue.poll):
            with pytest.raises(InvalidInput, match="a type"):
                poll(type=type_name)

    @pytest.mark.parametrize("timeout", [5, 0.5, "5s"])
    def test_timeouts(self, queue: Queue[Any], timeout: Any) -> None:
        with pytest.raises(InvalidInput, match="timeout"):
            queue.poll(timeout)

    @pytest.mark.parametrize("prefetch", [0, -1, 1_001, 1.5, True])
    def test_prefetches(self, queue: Queue[Any], prefetch: Any) -> None:
        with pytest.raises(InvalidInput, match="prefetch"):
            next(iter(queue.consume(prefetch=prefetch)))


class TestKeysOfEveryVerb:
    @ids(KEYS)
    def test_keys(self, queue: Queue[Any], given: Any, problem: str) -> None:
        for verb in (queue.read, queue.contains, queue.drop):
            with pytest.raises(InvalidInput, match=problem):
                verb(given)


class TestEmptyStaysEmpty:
    def test_a_queue_that_saw_only_bad_input_was_never_made(self, app: App, queue: Queue[Any]) -> None:
        fresh = app.queue(queue.name + "-fresh")
        bads: list[dict[str, Any]] = [{"priority": 11}, {"at": NAIVE}, {"after": -SECOND}]
        for bad in bads:
            with pytest.raises(InvalidInput):
                fresh.offer("a", 1, **bad)
        assert fresh.name not in [info.name for info in app.queues.list()]
        with pytest.raises(UnknownQueue):
            app.queues.counts(fresh.name)


class TestErrors:
    def test_bad_input_is_a_value_error_with_a_hint(self, queue: Queue[Any]) -> None:
        with pytest.raises(ValueError, match="no time zone: 2024-01-01T00:00:00") as caught:
            queue.offer("a", 1, at=NAIVE)
        assert isinstance(caught.value, InvalidInput)
        assert "timezone.utc" in str(caught.value.hint)

    def test_long_input_is_not_repeated_at_length(self, queue: Queue[Any]) -> None:
        for bad in ({"priority": "p" * 10_000}, {"max_attempts": "m" * 10_000}):
            with pytest.raises(InvalidInput) as caught:
                queue.offer("a", 1, **bad)  # pyright: ignore[reportArgumentType]
            assert len(str(caught.value)) < 400
