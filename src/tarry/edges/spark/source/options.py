"""Options of the reader, validated before anything is read."""

# pyright: basic
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from tarry.core.errors import InvalidInput
from tarry.core.journal.snapshots import ColumnCondition, Scan, SnapshotBound, Window
from tarry.edges.env import dsn_from
from tarry.edges.spark.schemas import TABLES

OPTIONS = (
    "dsn", "table", "columns", "since", "until", "window", "partitions", "pushdown", "maxRowsPerBatch", "start", "startAnew",
)  # fmt: skip
"""Documented in docs/reference/spark.md."""
_NAMES = {name.lower() for name in OPTIONS} | {"path"}  # Spark's own: load(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    dsn: str
    scan: Scan
    window: Window | None
    partitions: int | None
    pushdown: bool | None
    max_rows: int | None
    start: str
    start_anew: bool

    @property
    def schema(self) -> StructType:
        return StructType([TABLES[self.scan.table][name] for name in self.scan.columns])


def parse(given: Mapping[str, str], schema: StructType | None = None) -> SourceOptions:
    """Validated options. `schema`: the schema that the caller declared, if any; its columns must exist in the table."""
    options = {name.lower(): value.strip() for name, value in given.items() if value is not None}
    if unknown := sorted(options.keys() - _NAMES):
        raise InvalidInput(f"there is no option {unknown[0]!r} for reading tarry; there are: {', '.join(OPTIONS)}")
    table = options.get("table") or options.get("path") or "events"
    if table not in TABLES:
        raise InvalidInput(f"option table is one of {', '.join(TABLES)}, not {table!r:.80}")
    since, until = _instant(options, "since"), _instant(options, "until")
    if since is not None and until is not None and until < since:
        raise InvalidInput(f"option until ({until.isoformat()}) lies before since ({since.isoformat()})")
    start = options.get("start", "earliest")
    if start not in ("earliest", "latest"):
        raise InvalidInput(f"option start is earliest or latest, not {start!r:.80}")
    return SourceOptions(
        dsn=dsn_of(options),
        scan=Scan(table=table, columns=_columns(options, table, schema), since=since, until=until),
        window=_window(options, table),
        partitions=positive(options, "partitions"),
        pushdown=boolean(options, "pushdown"),
        max_rows=positive(options, "maxRowsPerBatch"),
        start=start,
        start_anew=bool(boolean(options, "startAnew")),
    )


def dsn_of(options: Mapping[str, str]) -> str:
    dsn = options.get("dsn") or dsn_from()
    if dsn is None:
        raise InvalidInput(
            "no database is given: set the option dsn (app.dsn, for an app on the embedded database) or TARRY_DSN"
        )
    return dsn


def _columns(options: Mapping[str, str], table: str, schema: StructType | None) -> tuple[str, ...]:
    known = TABLES[table]
    if schema is not None:
        columns = tuple(schema.names)
    elif "columns" in options:
        columns = tuple(name.strip() for name in options["columns"].split(",") if name.strip())
    else:
        columns = tuple(known.names)
    if not columns and schema is None:
        raise InvalidInput("option columns names no column; leave it out to read all of them")
    if unknown := [name for name in columns if name not in known.names]:
        raise InvalidInput(f"{table} has no column {unknown[0]!r:.80}; it has: {', '.join(known.names)}")
    for field in schema or ():
        if field.dataType != known[field.name].dataType:
            expected, actual = field.dataType.simpleString(), known[field.name].dataType.simpleString()
            raise InvalidInput(f"column {field.name} of {table} is {actual}, not {expected}: cast it after reading")
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"option columns names a column twice: {', '.join(columns)}")
    return columns


def positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise InvalidInput(f"option {name} is a whole number above 0, not {text!r:.80}")
    return int(text)


def boolean(options: Mapping[str, str], name: str) -> bool | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"option {name} is true or false, not {text!r:.80}")
    return text.lower() == "true"


def _instant(options: Mapping[str, str], name: str) -> datetime | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"option {name} is an instant like 2026-11-15T00:00:00Z, not {text!r:.80}") from None
    if instant.utcoffset() is None:
        raise InvalidInput(f"option {name} has no time zone: {text!r:.80}; write it like 2026-11-15T00:00:00Z")
    return instant.astimezone(UTC)


def window_text(window: Window) -> str:
    """The option `window`."""
    return json.dumps({"start": window.start.as_json(), "end": window.end.as_json()})


def _window(options: Mapping[str, str], table: str) -> Window | None:
    if "window" not in options:
        return None
    if table != "events":
        raise InvalidInput(f"option window is for events, not for {table}")
    try:
        window = json.loads(options["window"])
        return Window(SnapshotBound.from_json(window["start"]), SnapshotBound.from_json(window["end"]))
    except (json.JSONDecodeError, KeyError, TypeError):
        raise InvalidInput('option window is JSON like {"start": {"snapshot": …}, "end": {…}}') from None


def condition(filter: ds.Filter) -> ColumnCondition | None:
    """A Spark filter as a condition for the database; None if the database does not know its column or its values."""
    negated = isinstance(filter, ds.Not)
    inner: Any = filter.child if isinstance(filter, ds.Not) else filter
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    values = tuple(inner.value) if isinstance(inner, ds.In) else (inner.value,) if hasattr(inner, "value") else ()
    if len(attribute) != 1 or not all(map(_is_plain, values)):
        return None
    return ColumnCondition(attribute[0], type(inner).__name__, values, negated=negated)


def _is_plain(value: Any) -> bool:
    """Whether Spark and PostgreSQL agree on this type: not bool, not a naive datetime, no decimals."""
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))
