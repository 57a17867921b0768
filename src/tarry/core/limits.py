"""Input limits and their checks. Every check raises `InvalidInput` before anything is stored."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

from tarry.core.errors import InvalidInput, InvalidPayload

QUEUE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
KEY_LENGTH = 200
TYPE_LENGTH = 100
PRIORITIES = range(10)
LONGEST_DELAY = timedelta(days=3653)
SHORTEST_LEASE = timedelta(seconds=1)
LONGEST_LEASE = timedelta(hours=12)
PAYLOAD_BYTES = 256 * 1024
HEADER_BYTES = 8 * 1024
JSON_DEPTH = 64
MAX_ATTEMPTS = 1_000_000
MAX_DEPTH = 1_000_000
DESCRIPTION_LENGTH = 500
ERROR_LENGTH = 8_000
PURGE_CONFIRMATION = "Yes, please, I know what I'm doing!"


def check_queue_name(name: object) -> str:
    if check_existing_queue_name(name) in (".", ".."):
        raise InvalidInput(f"a queue cannot be named {name!r}: HTTP clients remove it from a path")
    return cast("str", name)


def check_existing_queue_name(name: object) -> str:
    """For deleting and renaming a queue: older versions allowed `.` and `..`."""
    if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name):
        raise InvalidInput(f"a queue name is 1 to 100 of the characters A-Z a-z 0-9 . _ -, not {name!r:.120}")
    return name


def check_key(key: object) -> str:
    if type(key) is str and 0 < len(key) <= KEY_LENGTH and key.isascii() and "\x00" not in key:
        return key  # fast path, for every message
    return check_text(key, "a key", KEY_LENGTH)


def check_type(type_name: object) -> str | None:
    return None if type_name is None else check_text(type_name, "a type", TYPE_LENGTH)


def check_consumer(consumer: object) -> str | None:
    return None if consumer is None else check_text(consumer, "a consumer name", KEY_LENGTH)


def check_priority(priority: object) -> int:
    # bool is an int in Python, but True as a priority is a mistake.
    if not isinstance(priority, int) or isinstance(priority, bool) or priority not in PRIORITIES:
        raise InvalidInput(f"priority is a whole number from 0 (last) to 9 (first), not {priority!r:.120}")
    return priority


def check_instant(at: object, name: str = "at") -> datetime:
    if not isinstance(at, datetime):
        raise InvalidInput(f"{name} must be a datetime with a time zone, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise InvalidInput(
            f"{name} has no time zone: {at.isoformat()}", hint="use datetime.now(timezone.utc) or datetime(…, tzinfo=…)"
        )
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"{name} is outside of the years 1 to 9999: {at.isoformat()}") from error


def check_delay(delay: object, name: str = "after") -> timedelta:
    if not isinstance(delay, timedelta):
        raise InvalidInput(f"{name} must be a timedelta, not {type(delay).__name__}")
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        raise InvalidInput(f"{name} must be between 0 and 10 years, not {delay}")
    return delay


def check_lease_for(lease_for: object) -> timedelta:
    if not isinstance(lease_for, timedelta):
        raise InvalidInput(f"lease_for must be a timedelta, not {type(lease_for).__name__}")
    if not SHORTEST_LEASE <= lease_for <= LONGEST_LEASE:
        raise InvalidInput(f"lease_for must be between 1 second and 12 hours, not {lease_for.total_seconds():,g} s")
    return lease_for


def check_positive(settings: object, *names: str) -> None:
    """Check durations and numbers among the fields of settings. None: no limit."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value <= type(value)(0):
            shown = f"{value.total_seconds():,g} s" if isinstance(value, timedelta) else value
            raise InvalidInput(f"{name} must be positive, got {shown}")


def check_max_depth(max_depth: object) -> int | None:
    return _check_limit(max_depth, "max_depth", MAX_DEPTH)


def check_max_attempts(max_attempts: object) -> int | None:
    return _check_limit(max_attempts, "max_attempts", MAX_ATTEMPTS)


def _check_limit(limit: object, name: str, most: int) -> int | None:
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise InvalidInput(f"{name} is a whole number from 1 to {most:,}, or None for no limit, not {limit!r:.120}")
    return limit


def check_payload_size(payload: bytes, limit: int = PAYLOAD_BYTES) -> bytes:
    if len(payload) > limit:
        raise InvalidPayload(
            f"the payload has {len(payload):,} bytes; at most {limit:,} are allowed",
            hint="keep large data elsewhere and offer a reference to it, or raise payload_limit",
        )
    return payload


def check_headers(headers: object) -> Mapping[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"headers map text to text, not {type(headers).__name__}")
    size = 0
    mapping = cast("Mapping[object, object]", headers)
    for name, value in mapping.items():
        size += len(check_text(name, "a header name", KEY_LENGTH).encode())
        size += len(check_text(value, "a header value", HEADER_BYTES, empty=True).encode())
    if size > HEADER_BYTES:
        raise InvalidInput(f"the headers have {size:,} bytes; at most {HEADER_BYTES:,} are allowed")
    return cast("Mapping[str, str]", mapping)


def check_timeout(timeout: object) -> timedelta | None:
    if timeout is not None and not isinstance(timeout, timedelta):
        raise InvalidInput(f"timeout must be a timedelta, or None for no limit, not {type(timeout).__name__}")
    return timeout


def check_count(n: object, name: str = "n") -> int:
    if not isinstance(n, int) or isinstance(n, bool):
        raise InvalidInput(f"{name} must be a whole number, not {n!r:.120}")
    return n


def check_versions(versions: object) -> list[int] | None:
    if versions is None:
        return None
    if not isinstance(versions, Iterable) or isinstance(versions, (str, bytes)):
        raise InvalidInput(f"versions must be whole numbers in a list or another iterable, not {versions!r:.120}")
    return [check_count(version, "version") for version in cast("Iterable[object]", versions)]


def clip_error(error: str) -> str:
    """An error text that can be stored: without NUL and lone surrogates, and of limited length."""
    clean = error.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= ERROR_LENGTH else clean[: ERROR_LENGTH - 1] + "…"


def check_text(value: object, what: str, longest: int, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {type(value).__name__}")
    if not value and not empty:
        raise InvalidInput(f"{what} must not be empty")
    if len(value) > longest:
        raise InvalidInput(f"{what} has at most {longest} characters, not {len(value):,}")
    if "\x00" in value:
        raise InvalidInput(f"{what} must not contain NUL (U+0000): {value!r:.120}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{what} is not valid Unicode text (lone surrogate): {value!r:.120}") from error
    return value


def check_confirmation(confirm: object) -> None:
    if confirm != PURGE_CONFIRMATION:
        raise InvalidInput(
            f"dropping every message needs the confirmation {PURGE_CONFIRMATION!r}, not {confirm!r:.120}"
        )
