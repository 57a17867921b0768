"""Generated keys: UUIDv7, because increasing keys keep an index dense and fast."""

from collections.abc import Sequence
from functools import cache, lru_cache

_WITH_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))


def uuid7(unix_ns: int, entropy: bytes) -> str:
    """RFC 9562 version 7 with the sub-millisecond part in `rand_a`, so ids of one process sort by time within a millisecond.

    Time and randomness are arguments: the core reads neither a clock nor a random source."""
    return uuid7_with(unix_ns, uuid_tails(entropy)[0])


def uuid7_with(unix_ns: int, tail: str) -> str:
    ms, rest_ns = divmod(unix_ns, 1_000_000)
    return f"{_milliseconds(ms)}{rest_ns * 4096 // 1_000_000:03x}-{tail}"


def uuid7s(unix_ns: int, tails: Sequence[str]) -> list[str]:
    """Ids in ascending order, one timestamp step (1/4096 ms) apart."""
    ms, rest_ns = divmod(unix_ns, 1_000_000)
    fraction, done, ids = rest_ns * 4096 // 1_000_000, 0, list[str]()
    while done < len(tails):
        head = _milliseconds(ms)
        ids += [f"{head}{text}-{tail}" for text, tail in zip(_fractions()[fraction:], tails[done:], strict=False)]
        ms, fraction, done = ms + 1, 0, len(ids)
    return ids


def uuid_tails(entropy: bytes) -> list[str]:
    """The last 64 bits of a UUID as text, variant and randomness, for each 8 bytes."""
    data = bytearray(entropy)
    data[::8] = data[::8].translate(_WITH_VARIANT)
    return [data[i : i + 8].hex("-", 6) for i in range(0, len(data), 8)]


@cache
def _fractions() -> list[str]:
    return [f"{i:03x}" for i in range(4096)]


@lru_cache(maxsize=1)
def _milliseconds(ms: int) -> str:
    """Cached: a large batch generates a thousand keys per millisecond."""
    return f"{ms >> 16 & 0xFFFF_FFFF:08x}-{ms & 0xFFFF:04x}-7"
