"""Common values in the payloads of a group of dead letters: `tenant=acme` in 94 of 100."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

DEEPEST = 3
MOST_FIELDS = 100
"""Maximum number of fields read per payload."""
LONGEST = 80
LEAST_SHARE = 0.3


class Facet(NamedTuple):
    field: str
    value: str
    times: int
    share: float


def facets(payloads: Iterable[Any], *, limit: int = 8) -> list[Facet]:
    """The most common value of each field, the most common first. Excludes values that occur once, or in less than
    `LEAST_SHARE` of the payloads."""
    counts: Counter[tuple[str, str]] = Counter()
    total = 0
    for payload in payloads:
        total += 1
        if isinstance(payload, Mapping):
            counts.update(set(_fields(cast("Mapping[str, Any]", payload), "", DEEPEST)))
    best: dict[str, Facet] = {}
    for (field, value), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count > 1 and count >= LEAST_SHARE * total:
            best.setdefault(field, Facet(field, value, count, count / total))
    return list(best.values())[:limit]


def _fields(payload: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, value in list(payload.items())[:MOST_FIELDS]:
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            if depth > 1:
                yield from _fields(cast("Mapping[str, Any]", value), f"{path}.", depth - 1)
        elif value is None or isinstance(value, (str, int, float)):
            text = _word(value)
            if len(path) <= LONGEST and len(text) <= LONGEST:
                yield path, text


def _word(value: str | float | None) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
