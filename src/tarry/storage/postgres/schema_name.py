"""The schema of Tarry's tables: `tarry`, or the one that an address names (`postgresql://…?schema=tenant`, which
`edges/env.py` writes as an option of libpq). Statements name the schema `tarry`; here they get the other name."""

import re
from functools import cache
from typing import Any, Final, LiteralString, cast

from psycopg import AsyncConnection, Connection, Cursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import Composable

DEFAULT: Final = "tarry"
_ATTRIBUTE = "_tarry_schema"
_OPTION = re.compile(r"\s*-c\s*tarry\.schema=(\w+)")
_IDENTIFIER = re.compile(r"\btarry(?=\.[a-z_%])|(?<=if not exists )tarry\b|(?<=listen )tarry\b")
"""Before the name of a table or function, or alone. Quoted: a schema may be named by a keyword, such as `user`."""
_TEXT = re.compile(r"(?<=')tarry(?=')")
"""A privilege, a namespace, the channel of notifications."""


@cache
def schema_of(dsn: str) -> str:
    named = _OPTION.search(_options(dsn))
    return named[1] if named else DEFAULT


def other_options(dsn: str) -> dict[str, str]:
    """Keywords without our option, which a pooler would refuse."""
    options = _options(dsn)
    return {"options": _OPTION.sub("", options)} if _OPTION.search(options) else {}


def listen_dsn_of(dsn: str, listen_dsn: str | None) -> str:
    """The address for LISTEN: another one bypasses a pooler, and need not name the schema again."""
    if listen_dsn is None or schema_of(dsn) == schema_of(listen_dsn):
        return listen_dsn or dsn
    return make_conninfo(listen_dsn, options=f"{_OPTION.sub('', _options(listen_dsn))} -ctarry.schema={schema_of(dsn)}")


def _options(dsn: str) -> str:
    return str(conninfo_to_dict(dsn).get("options") or "")


@cache
def in_schema(sql: LiteralString, schema: str) -> LiteralString:
    """Of a text of our own only: a value in it that looks like the name would be changed, too, and the text is cached."""
    if schema == DEFAULT:
        return sql
    return cast("LiteralString", _TEXT.sub(schema, _IDENTIFIER.sub(f'"{schema}"', sql)))


def keep_schema(conn: Connection[Any] | AsyncConnection[Any], schema: str) -> None:
    """For a connection of our own. A text that is executed on it directly gets the name, too; what is composed has it."""
    if schema != DEFAULT:
        vars(conn)[_ATTRIBUTE] = schema
        if isinstance(conn, Connection):
            conn.cursor_factory = _SchemaCursor


def schema_on(conn: Connection[Any] | AsyncConnection[Any]) -> str:
    return vars(conn).get(_ATTRIBUTE, DEFAULT)


class _SchemaCursor(Cursor[Any]):
    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        text: Any = query if isinstance(query, Composable) else in_schema(query, schema_on(self.connection))
        return super().execute(text, *args, **options)
