"""Data on stdout: tables for people, JSON for programs. Boxes and colours only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from tarry.edges.cli.text import safe_json, shown, width_of


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class Column(NamedTuple):
    title: str
    right: bool = False
    """Numbers stand at the right."""
    style: str = ""
    """A colour, on terminals that have them."""
    spare: bool = False
    """Left out where a terminal is too narrow for it."""


class Cell(NamedTuple):
    """A text with a colour of its own."""

    text: str
    style: str = ""


Value = str | Cell


class Printer:
    def __init__(self, output: Output, *, color: bool = True) -> None:
        self._output = output
        self._color = color

    @property
    def for_people(self) -> bool:
        return self._output is Output.TABLE

    @property
    def colored(self) -> bool:
        return self._color

    @property
    def line_by_line(self) -> bool:
        return self._output is Output.JSONL

    def listing(
        self,
        schema: str,
        items: Mapping[str, Sequence[Mapping[str, Any]]],
        columns: Sequence[Column],
        rows: Sequence[Sequence[Value]],
        *,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Several of a kind. `items` has one entry: the name of the list, and the list. `more` goes with the whole."""
        ((name, values),) = items.items()
        if self._output is Output.JSON:
            self._json({"schema": schema, **(more or {}), name: list(values)}, indent=2)
        elif self._output is Output.JSONL:
            for value in values:
                self._json({"schema": _item_schema(schema), **value})
        elif rows:
            self._table(columns, rows)

    def record(self, schema: str, value: Mapping[str, Any], fields: Sequence[tuple[str, Value]]) -> None:
        """One thing with its properties, one below the other for people."""
        if not self.for_people:
            self._json({"schema": schema, **value}, indent=2 if self._output is Output.JSON else None)
            return
        self._fields(fields)

    def lines(self, texts: Sequence[Value]) -> None:
        for text, style in map(_cell, texts):
            self._line(self._styled(shown(text), style))

    def verbatim(self, text: str) -> None:
        """Text of our own, or made safe already, as it is."""
        self._line(text)

    def aside(self, text: str) -> None:
        sys.stderr.write(shown(text) + "\n")
        sys.stderr.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def _json(self, value: Mapping[str, Any], indent: int | None = None) -> None:
        self._line(safe_json(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)))

    def _line(self, text: str) -> None:
        sys.stdout.write(text.rstrip(" ") + "\n")

    def _fields(self, fields: Sequence[tuple[str, Value]]) -> None:
        width = max((width_of(shown(name)) for name, _ in fields), default=0)
        for name, content in fields:
            text, style = _cell(content)
            label = self._styled(_aligned(shown(name), width, right=False), "bold")
            self._line(f"{label}  {self._styled(shown(text), style)}")

    def _table(self, columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> None:
        if sys.stdout.isatty():
            self._rich_table(columns, rows)
            return
        # Into a pipe or a file: aligned, never cut, one line per row, so that grep and awk have it easy.
        lines = [[column.title for column in columns], *([shown(_cell(value).text) for value in row] for row in rows)]
        widths = _widths(columns, rows)
        for line in lines:
            cells = zip(columns, line, widths, strict=True)
            self._line("  ".join(_aligned(text, width, right=column.right) for column, text, width in cells))

    def _rich_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Without colours there is no bold either: then not a single escape is written.
        colored = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        plain = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, color_system=None)
        console = colored if self._color else plain
        widths = _widths(columns, rows)
        fitting = _that_fit(columns, widths, console.width)
        if not fitting:
            self._one_below_the_other(columns, rows)
            return
        # Text, never markup: a key that reads [red] is a key that reads [red].
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for i in fitting:
            table.add_column(
                Text(columns[i].title),
                justify="right" if columns[i].right else "left",
                style=columns[i].style,
                overflow="fold",
                min_width=min(widths[i], _FOLDED_FROM),
            )
        for row in rows:
            table.add_row(*(Text(shown(cell.text), style=cell.style) for cell in (_cell(row[i]) for i in fitting)))
        console.print(table)

    def _one_below_the_other(self, columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> None:
        """For a terminal that is too narrow: a table whose words are broken in the middle is no help to anybody."""
        for number, row in enumerate(rows):
            if number:
                self._line("")
            fields = [(column.title, value) for column, value in zip(columns, row, strict=True)]
            self._fields([(title, value) for title, value in fields if _cell(value).text])

    def _styled(self, text: str, style: str) -> str:
        if not style or not self._color or not sys.stdout.isatty():
            return text
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m"


_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


_FOLDED_FROM = 20
"""What is longer than so many columns may be folded: keys, payloads, errors, hints."""
_GAP = 3


def _that_fit(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The columns that a table can have without a short one being folded; none, if not even those it must have fit."""

    def is_too_wide(some: Sequence[int]) -> bool:
        return sum(min(widths[i], _FOLDED_FROM) for i in some) + _GAP * (len(some) - 1) > room

    fitting = list(range(len(columns)))
    spare = [i for i in fitting if columns[i].spare]
    while spare and is_too_wide(fitting):
        fitting.remove(spare.pop())
    return [] if is_too_wide(fitting) else fitting


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[int]:
    return [
        max(width_of(column.title), *(width_of(shown(_cell(row[i]).text)) for row in rows))
        for i, column in enumerate(columns)
    ]


def _cell(value: Value) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _aligned(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def _item_schema(schema: str) -> str:
    """`tarry.queue.list/1` is made of `tarry.queue/1`."""
    name, version = schema.rsplit("/", 1)
    return f"{name.removesuffix('.list')}/{version}"
