"""SQL on the files of a lake, by DuckDB, an optional dependency: read-only, bounded, and without access to anything else.

Three walls, each sufficient: the statement is parsed and must be one query on the tables of the explorer; DuckDB may open
files below the lake only, and none by another statement; time, memory and rows are limited. Payloads are left out of
what visitors query, since rules that hide parts of them could not be applied to what SQL makes of them.
"""

from __future__ import annotations

import re
import threading
import time
from base64 import b64decode
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import msgspec

from tarry.core.analytics.manifest import ArchivedFile
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.journal.events import Event, EventKind

TABLE = "events"
COLUMNS = (
    "id", "at", "kind", "queue", "key", "version", "attempt", "priority", "due_at", "leased_at", "lease_until", "consumer",
    "size", "error", "detail",
)  # fmt: skip
_READ = tuple(f'"{name}"' for name in COLUMNS if name != "detail")
LONGEST = 4_000
"""Characters of a statement."""
QUERY_FOR_S = 3.0
MEMORY = "256MB"
INSTALL = "pip install 'tarry[archive]'"
_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
"""Functions that make tables of their arguments; all others read files, settings or other statements."""
_NAME = re.compile(r"[A-Za-z_]\w{0,60}")
_PLAIN = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "FLOAT",
        "DOUBLE",
        "VARCHAR",
        "DATE",
        "TIMESTAMP",
    }
)
"""Types that Python has; others are shown as text."""


class TooMuch(InvalidInput):
    """The query needs more time or memory than it may have."""


class QueryResult(NamedTuple):
    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    """There are more rows than the limit."""
    seconds: float


def is_installed() -> bool:
    return find_spec("duckdb") is not None


def local(files: Sequence[ArchivedFile]) -> list[ArchivedFile]:
    """The files of lakes that are directories of this machine."""
    here = {lake for lake in {file.lake for file in files} if "://" not in lake and Path(lake).is_dir()}
    return [file for file in files if file.lake in here]


def query(
    files: Sequence[ArchivedFile],
    statement: str,
    limit: int,
    *,
    query_for_s: float = QUERY_FOR_S,
    columns: Sequence[str] = COLUMNS,
) -> QueryResult:
    """The first rows of a query on these columns of these files. Blocks: run it in a thread."""
    started = time.monotonic()
    with _opened(files, statement, columns, query_for_s) as conn:
        described = conn.execute(f"select * from {_rows_of(statement)} limit 0").description  # noqa: S608 - checked, and with no access to anything else
        shown = ", ".join(
            f'"{_escaped(name)}"' if str(kind) in _PLAIN else f'"{_escaped(name)}"::varchar'
            for name, kind, *_ in described
        )
        rows = conn.execute(f"select {shown} from {_rows_of(statement)} limit {limit + 1:d}").fetchall()  # noqa: S608 - checked, and with no access to anything else
    names = [column[0] for column in described]
    return QueryResult(names, rows[:limit], len(rows) > limit, time.monotonic() - started)


def parquet(files: Sequence[ArchivedFile], statement: str, limit: int) -> bytes:
    """The first rows of a query as a Parquet file. Blocks: run it in a thread."""
    with TemporaryDirectory(prefix="tarry-") as folder:
        path = Path(folder).resolve() / "result.parquet"
        with _opened(files, statement, COLUMNS, QUERY_FOR_S, folder=path.parent) as conn:
            conn.execute(
                f"copy (select * from {_rows_of(statement)} limit {limit:d}) to {_text(str(path))} "  # noqa: S608 - checked
                "(format parquet, compression zstd)"
            )
        return path.read_bytes()


def _rows_of(statement: str) -> str:
    return f"({statement.strip().rstrip(';')}\n)"


@contextmanager
def _opened(
    files: Sequence[ArchivedFile],
    statement: str,
    columns: Sequence[str],
    query_for_s: float,
    *,
    folder: Path | None = None,
) -> Generator[Any]:
    """A connection that reads these files, for a statement that it has checked. It may write into `folder` alone."""
    import duckdb

    conn: Any = duckdb.connect(":memory:")
    timer = threading.Timer(query_for_s, conn.interrupt)
    timer.start()
    try:
        check(conn, statement)
        _open_lake(conn, files, columns, folder)
        yield conn
    except duckdb.InterruptException:
        raise TooMuch(
            f"the query took longer than {query_for_s:g} seconds and was cut off", hint="choose fewer days or one queue"
        ) from None
    except duckdb.OutOfMemoryException:
        raise TooMuch(f"the query needs more than {MEMORY} of memory", hint="choose fewer days, or aggregate") from None
    except duckdb.Error as error:
        raise InvalidInput(
            f"DuckDB: {str(error).splitlines()[0]:.300}", hint=f"columns: {', '.join(COLUMNS)}"
        ) from None
    finally:
        timer.cancel()
        conn.close()


def events(
    files: Sequence[ArchivedFile],
    since: datetime | None,
    until: datetime,
    *,
    is_newest_first: bool,
    limit: int,
    key: str | None = None,
) -> tuple[list[Event], bool]:
    """The first events of these files between two instants, without payloads and details, or those of one key with them; and
    whether there are more. Blocks: run it in a thread."""
    read = _READ if key is None else (*_READ, "detail", "base64(payload) as payload")
    way = "desc" if is_newest_first else "asc"
    of_key = "" if key is None else f"key = {_text(key)} and "
    ended = f"timestamp '{until.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
    begun = "" if since is None else f"\"at\" >= timestamp '{since.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}' and "
    result = query(
        files,
        f"select {', '.join(read)} from {TABLE} "  # noqa: S608 - names and instants of ours, and a quoted text
        f'where {of_key}{begun}"at" < {ended} order by "at" {way}, id {way}',
        limit,
        columns=COLUMNS if key is None else (*COLUMNS, "payload"),
    )
    return [_event(dict(zip(result.columns, row, strict=True))) for row in result.rows], result.more


def _event(columns: dict[str, Any]) -> Event:
    instants = {name: value.replace(tzinfo=UTC) for name, value in columns.items() if isinstance(value, datetime)}
    values: dict[str, Any] = {**columns, **instants, "kind": EventKind(columns["kind"])}
    if (payload := columns.get("payload")) is not None:
        values["payload"] = b64decode(payload)
    if (detail := columns.get("detail")) is not None:
        values["detail"] = msgspec.json.decode(detail)
    return Event(**values)


def check(conn: Any, statement: str) -> None:
    """Refuse everything but one query on the table of events."""
    if len(statement) > LONGEST:
        raise InvalidInput(f"a statement has at most {LONGEST:,} characters, not {len(statement):,}")
    (text,) = conn.execute("select json_serialize_sql(?::varchar)", [statement]).fetchone()
    tree = msgspec.json.decode(text)
    if tree["error"]:
        reason = str(tree.get("error_message") or "it is no query").splitlines()[0]
        raise InvalidInput(f"this cannot be run: {reason:.300}", hint=f"only queries: select … from {TABLE}")  # noqa: S608 - a message
    if len(tree["statements"]) != 1:
        raise InvalidInput(f"one statement at a time, not {len(tree['statements'])}")
    nodes = list(_nodes(tree))
    maps: list[Any] = [node["cte_map"]["map"] for node in nodes if node.get("cte_map")]
    names = {str(item["key"]) for items in maps for item in items}
    for node in nodes:
        kind = node.get("type")
        if kind == "TABLE_FUNCTION" and node["function"]["function_name"] not in _FUNCTIONS:
            raise InvalidInput(
                f"the function {node['function']['function_name']} is not available here", hint=f"read from {TABLE}"
            )
        if kind == "BASE_TABLE":
            name, outside = str(node["table_name"]), node.get("schema_name") or node.get("catalog_name")
            if outside or not _NAME.fullmatch(name) or (name != TABLE and name not in names):
                raise InvalidInput(f"there is no table {name!r:.120}", hint=f"read from {TABLE}")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            known = cast("dict[str, Any]", node)
            yield known
            waiting.extend(known.values())
        elif isinstance(node, list):
            waiting.extend(cast("list[Any]", node))


def _open_lake(conn: Any, files: Sequence[ArchivedFile], columns: Sequence[str], folder: Path | None) -> None:
    """The view, and then no access to anything but the lakes; the settings cannot be changed afterwards."""
    if not files:
        raise InvalidState("no file of a lake on this machine matches", hint="choose other days or another queue")
    roots = sorted({str(Path(each.lake).resolve()) for each in files} | ({str(folder)} if folder else set()))
    paths = [str(Path(each.lake).resolve() / each.file.path) for each in files]
    selected = ", ".join(
        'queue_name as "queue"'
        if name == "queue"
        else f'"{name}"::timestamp as "{name}"'
        if name.endswith("at") or name == "lease_until"
        else f'"{name}"'
        for name in columns
    )
    for setting in (
        "TimeZone = 'UTC'",
        f"memory_limit = '{MEMORY}'",
        "threads = 1",
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"allowed_directories = [{', '.join(_text(f'{root}/') for root in roots)}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        conn.execute(f"set {setting}")
    conn.execute(
        f"create view {TABLE} as select {selected} "  # noqa: S608 - names of ours, paths of the manifest, quoted
        f"from read_parquet([{', '.join(map(_text, paths))}], hive_partitioning = false, union_by_name = true)"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _escaped(name: str) -> str:
    return name.replace('"', '""')
