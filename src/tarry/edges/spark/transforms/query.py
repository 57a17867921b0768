# pyright: basic
"""Transformations as SQL files. A frame built from Python columns needs a JVM call for every name, literal and operator,
thousands for one job; a query of any length needs about six.
"""

import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

_TEXT = re.compile(r"text'((?:[^']|'')*)'")


def query(text: str, args: Mapping[str, Any] | None = None, **frames: DataFrame) -> DataFrame:
    """Run a query in which `{name}` is a frame and `:name` an argument. Instants and dates are passed as text, which the
    query converts: `timestamp(:since)`.
    """
    values = {name: value.isoformat() if isinstance(value, date) else value for name, value in (args or {}).items()}
    return next(iter(frames.values())).sparkSession.sql(text, args=values, **frames)


@cache
def sql(name: str, **parts: str) -> str:
    """The text of a file, such as anomalies/sql/past.sql for "anomalies/past", with `{name}` replaced by these parts."""
    subject, _, verb = name.rpartition("/")
    text = files("tarry.edges.spark.transforms").joinpath(subject, "sql", f"{verb}.sql").read_text(encoding="utf-8")
    text = re.sub(r"--[^\n]*", "", text)
    text = _TEXT.sub(lambda template: filled(template[1].replace("''", "'")), text)
    return re.sub(r"\{(\w+)\}", lambda name: f"({parts[name[1]]})" if name[1] in parts else name[0], text)


def nothing(schema: StructType) -> str:
    """A query without rows."""
    columns = (f"cast(null as {field.dataType.simpleString()}) as {field.name}" for field in schema)
    return f"select {', '.join(columns)} where false"


def stored_or_nothing(stored: DataFrame | None, schema: StructType) -> tuple[str, dict[str, DataFrame]]:
    """A query for stored rows, and its frames; an empty query if there are none."""
    # By name: unions are by position, and a stored frame may have more columns.
    rows = f"select {', '.join(schema.names)} from {{stored}}"  # noqa: S608
    return (nothing(schema), {}) if stored is None else (rows, {"stored": stored})


def dated(at: str) -> str:
    """The UTC date of an instant, independent of the session's time zone, which may have an offset of half an hour."""
    return f"date_from_unix_date(int(floor(unix_seconds({at}) / 86400)))"


def filled(template: str) -> str:
    """The expression for a text'…' template of a SQL file; null if one of its values is null.

    `{name}` is a column, `{name:form}` its text in one of `_FORMS`.
    """
    pieces: list[str] = []
    for literal, name, form, _ in Formatter().parse(template):
        if literal:
            pieces.append("'" + literal.replace("\\", "\\\\").replace("'", "\\'") + "'")
        if name is not None:
            pieces.append(_FORMS[form].replace("$", name) if form else name)
    return f"concat({', '.join(pieces)})"


def _utc(pattern: str) -> str:
    """Text of the instant `$` in UTC, independent of the session's time zone."""
    seconds = "cast(unix_micros($) / 1000000 as decimal(18, 6))"
    return f"date_format(timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds}), '{pattern}')"


def _duration(seconds: str) -> str:
    """12 ms, 3.4 s, 5 min, 2.5 h. Null stays null, which `format_string` alone would not do."""
    return (
        "case when $ < 1 then format_string('%.0f ms', $ * 1000) when $ < 120 then format_string('%.1f s', $) "
        "when $ < 7200 then format_string('%.0f min', $ / 60) when $ >= 7200 then format_string('%.1f h', $ / 3600) end"
    ).replace("$", seconds)


_FORMS = {
    "instant": f"""concat("'", {_utc("yyyy-MM-dd HH:mm:ss.SSSSSS")}, "+00'")""",
    "ms": _duration("($ / 1000)"),
    "named": "coalesce(concat('consumer ', $), 'a consumer without a name')",
    # Decimals only for small fractions. Null stays null.
    "number": (
        "case when abs($) < 10 and $ <> floor($) then format_string('%.1f', double($)) "
        "when $ is not null then format_string('%,.0f', double($)) end"
    ),
    "s": _duration("$"),
    "sql": """concat("'", replace($, "'", "''"), "'")""",
    "time": _utc("HH:mm"),
    "us": _duration("($ / 1e6)"),
}
