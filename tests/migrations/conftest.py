"""Databases without anything in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.kit.servers import Server

_NUMBERS = count(1)
NewDatabase = Callable[[Server], str]


@pytest.fixture
def new_database() -> Iterator[NewDatabase]:
    """Makes an empty database on a server, and drops it in the end."""
    made: list[tuple[Server, str]] = []

    def create(server: Server) -> str:
        name = f"bare{next(_NUMBERS)}"
        with psycopg.connect(server.shared, autocommit=True) as conn:
            conn.execute(sql.SQL("create database {} template template0 encoding 'UTF8'").format(sql.Identifier(name)))
        made.append((server, make_conninfo(server.shared, dbname=name)))
        return made[-1][1]

    yield create
    for server, dsn in made:
        server.drop_database(dsn)


@pytest.fixture
def bare(server: Server, new_database: NewDatabase) -> str:
    return new_database(server)
