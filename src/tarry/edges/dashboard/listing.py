"""Lists: columns, rows and where the next page begins; as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from tarry.wire.base import data_of

Kind = Literal["text", "code", "number", "bytes", "time", "duration", "state"]
Format = Literal["html", "json", "csv"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def whole(text: str, digits: int = 18) -> int | None:
    """The number that a path, query or form has; None: it has another text, or too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


@dataclass(frozen=True, slots=True)
class Column:
    """`value` takes it from a row, for all formats; without, it is the attribute `name`. `kind` is how the table shows it."""

    name: str
    label: str
    kind: Kind = "text"
    value: Callable[[Any], Any] | None = None
    href: Callable[[Any], str | None] | None = None
    """Where the cell of the table leads, as a path of the dashboard."""
    hide_small: bool = False
    """Left out of the table on a narrow screen."""

    def of(self, row: Any) -> Any:
        return getattr(row, self.name) if self.value is None else self.value(row)

    @property
    def is_number(self) -> bool:
        return self.kind in ("number", "bytes", "duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    columns: Sequence[Column]
    rows: Sequence[Any]
    next: str | None = None
    """The value of `after` for the next page; None: this is the last."""
    name: str = "rows"
    """What the rows are, in JSON and in the name of the CSV file."""

    def response(self, format: Format) -> Response:
        return self._json() if format == "json" else self._csv()

    def _json(self) -> Response:
        rows = [{column.name: data_of(column.of(row)) for column in self.columns} for row in self.rows]
        return Response(msgspec.json.encode({self.name: rows, "next": self.next}), media_type="application/json")

    def _csv(self) -> Response:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([column.name for column in self.columns])
        writer.writerows([[_cell(column.of(row)) for column in self.columns] for row in self.rows])
        headers = {"content-disposition": f'attachment; filename="{self.name}.csv"'}
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: Any) -> Any:
    """A spreadsheet would run a text that begins like a formula."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    data = data_of(value)
    if isinstance(data, (dict, list)):
        return msgspec.json.encode(data).decode()
    return f"'{data}" if isinstance(data, str) and data.startswith(_FORMULA) else data
