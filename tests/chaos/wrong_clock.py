"""A wall clock that is wrong, for the process that calls `set_off` before it imports anything else.

In Python rather than with libfaketime: the one that Debian 12 ships makes `time.sleep` of Python 3.11 fail.
"""

from __future__ import annotations

import datetime
import time
import warnings
from typing import Any


def set_off(seconds: float, *, datetimes: bool = True) -> None:
    """`time.time`, `datetime.now` and their kin are off from now on; the monotonic clock is right.

    Without `datetimes` the class stays as it is: decoders that are generated from types would not know another one.
    """
    # Extension modules that are imported later find that the class has another size, and warn.
    warnings.filterwarnings("ignore", message="datetime.datetime size changed")
    real, true_s, true_ns = datetime.datetime, time.time, time.time_ns
    off = datetime.timedelta(seconds=seconds)

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

    class Wrong(real, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return real.now(tz) + off

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetime.UTC).replace(tzinfo=None) + off

    if datetimes:
        datetime.datetime = Wrong  # pyright: ignore[reportAttributeAccessIssue]
    time.time = lambda: true_s() + seconds
    time.time_ns = lambda: true_ns() + int(seconds * 1e9)
