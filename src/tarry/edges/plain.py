"""Values as JSON has them, for every edge that shows them as they are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, cast

from tarry.edges.times import exact


def data_of(value: Any) -> Any:
    """A summary as JSON has it: instants are RFC 3339, durations are seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: data_of(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(data_of(key)): data_of(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [data_of(item) for item in cast("Iterable[Any]", value)]
    return _plain(value)


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return exact(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
