"""Broken promises. Expected answers (a lost lease, an ignored offer) are values, see `outcomes`.

TarryError
├── InvalidInput            what was given cannot be accepted; nothing was stored        (also a ValueError)
│   └── InvalidPayload      … because of the payload
├── UnknownQueue            there is no queue of this name                               (also a LookupError)
├── UnknownSchedule         there is no schedule of this prefix                          (also a LookupError)
├── UnknownRedrive          there is no redrive job of this number                       (also a LookupError)
├── Refused                 understood, but not in this state (exists, not empty, leased, wrong confirmation)
│   └── HeldUp              … because somebody else's transaction had to be waited for, for too long: say it again
├── StoreUnavailable        the database could not be reached, after the retries allowed (also a ConnectionError)
├── CommitLost              the database answered COMMIT with ROLLBACK: nothing was stored
├── SchemaMismatch          the tables are missing, older or newer than this version of Tarry
├── UnsafeDatabase          the database is set up to lose accepted messages
└── EmbeddedError           the embedded PostgreSQL cannot be started
"""

from __future__ import annotations


class TarryError(Exception):
    """Any error Tarry raises on purpose. `hint` says what to do next, where there is something to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class InvalidInput(TarryError, ValueError): ...


class InvalidPayload(InvalidInput): ...


class UnknownQueue(TarryError, LookupError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue named {name!r}", hint=f"create it: tarry queue create {name}")
        self.name = name


class UnknownSchedule(TarryError, LookupError):
    def __init__(self, prefix: str) -> None:
        super().__init__(f"there is no schedule {prefix!r}", hint="see which there are: tarry cron list")
        self.prefix = prefix


class UnknownRedrive(TarryError, LookupError):
    def __init__(self, job: int) -> None:
        super().__init__(f"there is no redrive job {job}", hint="see: tarry redrive list")
        self.job = job


class Refused(TarryError): ...


class HeldUp(Refused): ...


class StoreUnavailable(TarryError, ConnectionError): ...


class CommitLost(TarryError): ...


class SchemaMismatch(TarryError): ...


class UnsafeDatabase(TarryError): ...


class EmbeddedError(TarryError): ...
