"""Exceptions. Expected outcomes (a lost lease, an ignored offer) are values, see `messages.outcomes`.

TarryError
├── InvalidInput            an argument is invalid; nothing was stored                   (also a ValueError)
│   └── InvalidPayload      … because of the payload
├── UnknownQueue            no queue has this name                                       (also a LookupError)
├── UnknownSchedule         no schedule has this name                                    (also a LookupError)
├── UnknownRedrive          no redrive job has this number                               (also a LookupError)
├── InvalidState            not possible in this state (exists, not empty, leased)
│   ├── LockTimeout         … because another transaction held a lock for too long: retry
│   └── QueueFull           … because the queue has `max_depth` messages: nothing was stored, offer later
├── StoreUnavailable        the database could not be reached, after all retries         (also a ConnectionError)
├── CommitLost              PostgreSQL replied to COMMIT with ROLLBACK: nothing was stored
├── SchemaMismatch          the tables are missing, older or newer than this version of Tarry
├── UnsafeDatabase          the settings of the database could lose accepted messages
└── EmbeddedError           the embedded PostgreSQL cannot be started
"""

from typing import Self


class TarryError(Exception):
    """Base class of all errors that Tarry raises. `hint`, if any, is a remedy; `str(error)` is the message and the hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class InvalidInput(TarryError, ValueError): ...


class InvalidPayload(InvalidInput): ...


class UnknownQueue(TarryError, LookupError):
    def __init__(self, name: str) -> None:
        hint = f"see which there are: tarry queue list; or create it: tarry queue create {name}"
        super().__init__(f"there is no queue named {name!r}", hint=hint)
        self.name = name


class UnknownSchedule(TarryError, LookupError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}", hint="see which there are: tarry cron list")
        self.name = name


class UnknownRedrive(TarryError, LookupError):
    def __init__(self, job: int) -> None:
        super().__init__(f"there is no redrive job {job}", hint="see: tarry redrive list")
        self.job = job


class InvalidState(TarryError):
    @classmethod
    def queue_exists(cls, name: str) -> Self:
        return cls(
            f"a queue named {name!r} exists already", hint=f"choose another name, or see: tarry queue show {name}"
        )

    @classmethod
    def queue_not_empty(cls, name: str, live: int, dead: int) -> Self:
        return cls(
            f"queue {name!r} is not empty: {live:,} live and {dead:,} dead messages",
            hint="drop and purge them first, or force the deletion",
        )


class LockTimeout(InvalidState): ...


class QueueFull(InvalidState):
    @classmethod
    def of(cls, name: str, max_depth: int) -> "QueueFull":
        detail = f"queue {name!r} has its max_depth of {max_depth:,}, so nothing was stored"
        return cls(detail, hint="offer again when consumers have caught up, or raise max_depth")


class StoreUnavailable(TarryError, ConnectionError): ...


class CommitLost(TarryError): ...


class SchemaMismatch(TarryError): ...


class UnsafeDatabase(TarryError): ...


class EmbeddedError(TarryError): ...
