"""Output on stdout: tables or JSON. Boxes and colours only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from tarry.edges.cli.output.text import safe_json, shown, width_of

T = TypeVar("T")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Cell(NamedTuple):
    """Text with its own colour."""

    text: str
    style: str = ""


class Ago(NamedTuple):
    """An instant that is shown only relative to now."""

    at: datetime


Value = str | int | datetime | timedelta | Enum | Ago | Cell | None
Fields = Sequence[tuple[str, Value]]
"""Titles and values of a record's lines. A line without a value is omitted."""


@dataclass(frozen=True)
class TableColumn(Generic[T]):
    """A table column or a record line. A list of fields stands for several lines."""

    title: str
    of: str | Callable[[T], Value | Fields] = ""
    """The value: an attribute of the item (`spec.queue`) or a function of it; by default the attribute of that title."""
    right: bool = False
    """Right-aligned, for numbers."""
    style: str | Mapping[Any, str] = ""
    """A colour, or the colour of each value; ignored without colour output."""
    spare: bool = False
    """Omitted on a terminal that is too narrow."""
    only: Literal["list", "record"] | None = None
    """Whether the column appears only in lists, or only when one item is shown in full."""

    def value(self, item: T) -> Any:
        value: Any = attrgetter(self.of or self.title)(item) if isinstance(self.of, str) else self.of(item)
        if isinstance(self.style, str) or value is None or isinstance(value, Cell):
            return value
        return Cell(text_of(value), self.style.get(value, ""))


@dataclass(frozen=True)
class EntityView(Generic[T]):
    """How one kind of entity is printed: `data` returns its JSON form, `columns` is the table for people."""

    schema: str
    """The schema of a list; `tarry.queue.list/1` has items `tarry.queue/1`."""
    name: str
    """The JSON field that contains a list."""
    columns: Sequence[TableColumn[T]]
    data: Callable[[T], Any]


def entity_view(
    schema: str, name: str, *columns: TableColumn[T], data: Callable[[T], Any] | None = None
) -> EntityView[T]:
    """A view whose JSON form, unless `data` returns it, has the fields of the entity."""
    from tarry.wire.base import data_of

    return EntityView(schema, name, columns, data or data_of)


Columns = Sequence[TableColumn[Any]]
"""Columns of a table whose rows are already formatted."""


def text_of(value: Value, now: datetime | None = None) -> str:
    """The text for people. Instants are absolute, and relative to `now`."""
    from tarry.edges.formats import instant, length, relative

    match value:
        case None:
            return ""
        case Cell():
            return value.text
        case bool():
            return "yes" if value else "no"
        case Ago():
            return relative(value.at, now or datetime.now(UTC))
        case datetime():
            return f"{instant(value)} ({relative(value, now)})" if now else instant(value)
        case timedelta():
            return length(value)
        case Enum():
            return str(value.value)
        case _:
            return str(value)


class Printer:
    def __init__(self, output: Output, *, color: bool = True) -> None:
        self.colored = color
        self.for_people = output is Output.TABLE
        self.line_by_line = output is Output.JSONL

    def listing(
        self, view: EntityView[T], items: Iterable[T], *, now: datetime | None, more: Mapping[str, Any] | None
    ) -> None:
        """Print a list of entities. `more`: further fields of the JSON document."""
        if self.for_people:
            columns = [column for column in view.columns if column.only != "record"]
            self.table(columns, ([column.value(item) for column in columns] for item in items), now)
        elif self.line_by_line:
            for item in items:
                self.record(_item_schema(view.schema), view.data(item))
        else:
            self._json({"schema": view.schema, **(more or {}), view.name: [plain(view.data(item)) for item in items]})

    def view(
        self, view: EntityView[T], item: T, *, now: datetime | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        """Print one entity. `more`: further JSON fields."""
        if self.for_people:
            fields: list[tuple[str, Value]] = []
            for column in view.columns:
                if column.only == "list":
                    continue
                value = column.value(item)
                fields += value if isinstance(value, list) else [(column.title, value)]
            self.fields(fields, now)
        else:
            self.record(_item_schema(view.schema), {**plain(view.data(item)), **(more or {})})

    def record(self, schema: str, value: Any, fields: Fields | None = None) -> None:
        """Print one object: a line per field, or JSON. `fields` default to those of the mapping, except lists."""
        if not self.for_people:
            self._json({"schema": schema, **plain(value)})
        elif fields is None:
            simple = ((name, item) for name, item in value.items() if not isinstance(item, list | Mapping))
            self.fields([(name.replace("_", " "), f"{item:,}" if type(item) is int else item) for name, item in simple])
        else:
            self.fields(fields)

    def fields(self, fields: Fields, now: datetime | None = None) -> None:
        cells = [(shown(name), _cell(value, now)) for name, value in fields if value is not None]
        width = max((width_of(name) for name, _ in cells), default=0)
        for name, cell in cells:
            label = self._styled(_aligned(name, width, right=False), "bold")
            self._line(f"{label}  {self._styled(shown(cell.text), cell.style)}")

    def lines(self, texts: Sequence[Value]) -> None:
        for cell in map(_cell, texts):
            self._line(self._styled(shown(cell.text), cell.style))

    def flush(self) -> None:
        sys.stdout.flush()

    def _json(self, value: Mapping[str, Any]) -> None:
        indent = None if self.line_by_line else 2
        self._line(safe_json(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)))

    def _line(self, text: str) -> None:
        sys.stdout.write(text.rstrip(" ") + "\n")

    def table(self, columns: Columns, values: Iterable[Sequence[Value]], now: datetime | None = None) -> None:
        rows = [[_cell(value, now) for value in row] for row in values]
        if not rows:
            return
        widths = [
            max(width_of(column.title), *(width_of(shown(row[i].text)) for row in rows))
            for i, column in enumerate(columns)
        ]
        if sys.stdout.isatty():
            self._rich_table(columns, rows, widths)
            return
        # For a pipe or a file: aligned, not cut, one line per row, for grep and awk.
        for line in [[column.title for column in columns], *([shown(cell.text) for cell in row] for row in rows)]:
            cells = zip(columns, line, widths, strict=True)
            self._line("  ".join(_aligned(text, width, right=column.right) for column, text, width in cells))

    def _rich_table(self, columns: Columns, rows: Sequence[Sequence[Cell]], widths: Sequence[int]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Without colours, bold text is off as well: no escape sequences.
        system: Any = "auto" if self.colored else None
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, color_system=system)
        fitting = _fitting(columns, widths, console.width)
        if not fitting:
            # A line per cell, and an empty line between rows.
            for number, row in enumerate(rows):
                if number:
                    self._line("")
                self.fields([(column.title, cell) for column, cell in zip(columns, row, strict=True) if cell.text])
            return
        # Text, not markup: a key may contain [red].
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column, width in ((columns[i], widths[i]) for i in fitting):
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                style=column.style if isinstance(column.style, str) else "",
                overflow="fold",
                min_width=min(width, _FOLDED_FROM),
            )
        for row in rows:
            table.add_row(*(Text(shown(row[i].text), style=row[i].style) for i in fitting))
        console.print(table)

    def _styled(self, text: str, style: str) -> str:
        if not style or not self.colored or not sys.stdout.isatty():
            return text
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m"


_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_FOLDED_FROM = 20
"""Cells wider than this may be folded: keys, payloads, errors, hints."""
_GAP = 3


def _fitting(columns: Columns, widths: Sequence[int], available: int) -> list[int]:
    """Indexes of the columns that fit without folding a short cell; empty if the required columns do not fit."""

    def is_too_wide(chosen: Sequence[int]) -> bool:
        return sum(min(widths[i], _FOLDED_FROM) for i in chosen) + _GAP * (len(chosen) - 1) > available

    fitting = list(range(len(columns)))
    spare = [i for i in fitting if columns[i].spare]
    while spare and is_too_wide(fitting):
        fitting.remove(spare.pop())
    return [] if is_too_wide(fitting) else fitting


def _cell(value: Value, now: datetime | None = None) -> Cell:
    return value if isinstance(value, Cell) else Cell(text_of(value, now))


def plain(value: Any) -> Mapping[str, Any]:
    """The JSON form of a mapping or a wire entity."""
    import msgspec

    from tarry.wire.base import data_of

    if isinstance(value, Mapping):
        return data_of(cast("Mapping[str, Any]", value))
    return json.loads(msgspec.json.encode(value))


def _aligned(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def _item_schema(schema: str) -> str:
    return schema.replace(".list/", "/")
