"""What a worker polls: a whole queue, or one type of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.rates import Rate
from tarry.services.handlers import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """A worker's options for one queue. None: the default of the worker or the queue."""

    concurrency: int | None = None
    prefetch: int | None = None
    lease_for: timedelta | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None and limits.check_count(self.concurrency, "concurrency") < 1:
            raise InvalidInput(f"concurrency must be at least 1, not {self.concurrency}")
        if self.prefetch is not None and limits.check_count(self.prefetch, "prefetch") < 0:
            raise InvalidInput(f"prefetch must not be negative, as {self.prefetch} is")
        if self.lease_for is not None:
            limits.check_lease_for(self.lease_for)
        if self.rate is not None and not isinstance(self.rate, Rate):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"rate must be a tarry.Rate, as Rate(100, timedelta(seconds=1)), not {self.rate!r:.120}")

    def joined(self, other: QueueOptions, queue: str) -> QueueOptions:
        """The combination for two handlers of one queue; they must not contradict each other."""
        given = {field.name: getattr(other, field.name) for field in dataclasses.fields(other)}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            if getattr(self, name) not in (None, value):
                raise InvalidInput(
                    f"queue {queue!r} has {name}={getattr(self, name)} already, and now {name}={value}",
                    hint=f"{name} belongs to the whole queue: give it to one of its handlers",
                )
        return dataclasses.replace(self, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    queue: str
    type: str | None
    options: QueueOptions
    handlers: Mapping[str | None, Handler]
    """By type; None: every type without its own handler."""

    def handler_of(self, type: str | None) -> Handler:
        return self.handlers[type if type in self.handlers else None if self.type is None else self.type]

    @property
    def max_attempts(self) -> int | None:
        """The limit that a poll may set for all its messages: the maximum over these handlers."""
        allowed = [handler.retry.max_attempts if handler.retry else None for handler in self.handlers.values()]
        return max((n for n in allowed if n is not None), default=None) if None not in allowed else None

    def __str__(self) -> str:
        return self.queue if self.type is None else f"{self.queue}/{self.type}"


def sources_of(handlers: Iterable[Handler], options: Mapping[str, QueueOptions]) -> list[Source]:
    """A queue with a handler for all types is polled as a whole. Otherwise each type is polled separately, so that
    types without a handler here are left to other workers.
    """
    by_queue: dict[str, dict[str | None, Handler]] = {}
    for handler in handlers:
        by_queue.setdefault(handler.queue, {})[handler.type] = handler
    found: list[Source] = []
    for queue, by_type in by_queue.items():
        if None in by_type:
            found.append(Source(queue=queue, type=None, options=options[queue], handlers=by_type))
        else:
            found += [
                Source(queue=queue, type=type, options=options[queue], handlers={type: handler})
                for type, handler in by_type.items()
            ]
    return found
