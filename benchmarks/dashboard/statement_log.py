"""How long each statement took, from the log of the server."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg.conninfo import make_conninfo

from tarry.storage.postgres.statement import sql

_LINE = re.compile(r"\[(\d+)\] LOG:  duration: ([\d.]+) ms  (parse|bind|execute|statement)[^:]*: (.*)")
_PLACEHOLDER = re.compile(r"\$\d+|%\(\w+\)s")


def logging_dsn(dsn: str) -> str:
    """Connections of this DSN log the duration of each statement; the role must be a superuser."""
    return make_conninfo(dsn, options="-c log_min_duration_statement=0 -c log_parameter_max_length=0")


def log_of(dsn: str) -> Path:
    """The log of an embedded server."""
    with psycopg.connect(dsn) as conn:
        row: Any = conn.execute("select current_setting('data_directory')").fetchone()
    return Path(row[0]).parent / "server.log"


class StatementLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> Mapping[str, Sequence[float]]:
        """Milliseconds of each statement since the last call, by the name of its SQL file. Of one execution, the times to
        parse, bind and execute are added up."""
        text = b""
        if self._path.stat().st_size < self._read:  # the supervisor has moved what was there, see `keep_small`
            text = self._path.with_suffix(".log.1").read_bytes()[self._read :]
            self._read = 0
        with self._path.open("rb") as log:
            log.seek(self._read)
            text += log.read()
            self._read = log.tell()
        times: dict[str, list[float]] = defaultdict(list)
        begun: dict[str, float] = defaultdict(float)
        for line in text.decode(errors="replace").splitlines():
            if match := _LINE.search(line):
                process, ms, step, statement = match.groups()
                begun[process] += float(ms)
                if step in ("execute", "statement"):
                    times[_name(statement)].append(begun.pop(process))
        return times


def _name(statement: str) -> str:
    return _names().get(_plain(statement), statement[:60])


def _plain(statement: str) -> str:
    return _PLACEHOLDER.sub("?", statement.replace("%%", "%"))


@cache
def _names() -> Mapping[str, str]:
    root = Path(str(files("tarry.storage.postgres")))
    paths = [path.relative_to(root) for path in root.rglob("sql/*.sql")]
    named = [f"{path.parent.parent}/{path.stem}" for path in paths if not path.stem.startswith("_")]
    return {_plain(sql(cast("LiteralString", name))): name for name in named}
