"""The schema of Tarry's tables: `tarry`, or the one in the address (`postgresql://…?schema=tenant`).

`edges/env.py` passes the name as a libpq option. Statements are written for the schema `tarry` and rewritten here.
"""

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
"""The schema before a table or function name, or alone. It is quoted, since it may be a keyword such as `user`."""
_TEXT = re.compile(r"(?<=')tarry(?=')")
"""The schema in a string literal: of a privilege, a namespace, or the notification channel."""


@cache
def schema_of(dsn: str) -> str:
    named = _OPTION.search(_options(dsn))
    return named[1] if named else DEFAULT


def other_options(dsn: str) -> dict[str, str]:
    """Connection keywords without the schema option, which a pooler would refuse."""
    options = _options(dsn)
    return {"options": _OPTION.sub("", options)} if _OPTION.search(options) else {}


def listen_dsn_of(dsn: str, listen_dsn: str | None) -> str:
    """The address for LISTEN. A separate `listen_dsn`, which bypasses a pooler, inherits the schema."""
    if listen_dsn is None or schema_of(dsn) == schema_of(listen_dsn):
        return listen_dsn or dsn
    return make_conninfo(listen_dsn, options=f"{_OPTION.sub('', _options(listen_dsn))} -ctarry.schema={schema_of(dsn)}")


def _options(dsn: str) -> str:
    return str(conninfo_to_dict(dsn).get("options") or "")


@cache
def in_schema(sql: LiteralString, schema: str) -> LiteralString:
    """Rewrite a statement for this schema. Only for packaged SQL: equal literals change too, and the text is cached."""
    if schema == DEFAULT:
        return sql
    return cast("LiteralString", _TEXT.sub(schema, _IDENTIFIER.sub(f'"{schema}"', sql)))


def keep_schema(conn: Connection[Any] | AsyncConnection[Any], schema: str) -> None:
    """Attach the schema to one of our connections. Text executed on it is rewritten; composed SQL already has the name."""
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
