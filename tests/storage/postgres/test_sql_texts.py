"""Rules for every SQL file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg import Connection, _queries
from psycopg.pq import ExecStatus

import tarry
from tarry.storage.postgres import statement
from tests.kit.servers import Server

FOLDER = Path(tarry.__file__).parent / "storage" / "postgres"
FILES = {f"{file.parent.parent.relative_to(FOLDER)}/{file.stem}": file for file in sorted(FOLDER.rglob("sql/*.sql"))}
FRAGMENTS = {verb for verb, file in FILES.items() if file.stem.startswith("_")}
VARIANTS = {
    f"{verb}:typed": file for verb, file in FILES.items() if "-- typed: " in file.read_text() and verb not in FRAGMENTS
}
SINGLE = {f"messages/{verb}:one": FILES[f"messages/{verb}"] for verb in ("offer", "offer_fresh", "ack")}
VERBS = FILES | VARIANTS | SINGLE


RARE = {"dead_letters/redrive_step", "maintenance/sweep", "rollups/add"}
"""Run a few times per second at most, so the translation is no part of its cost that counts."""


def lean(verb: str) -> str:
    return statement.sql(cast("LiteralString", verb))


def test_a_statement_is_short_enough_for_the_driver_to_remember_its_translation() -> None:
    """Beyond this the driver parses the text anew with every call, which costs more than the server does."""
    bytes_, parameters = _queries.MAX_CACHED_STATEMENT_LENGTH, _queries.MAX_CACHED_STATEMENT_PARAMS
    often = [name for name in VERBS if name not in RARE]
    assert [name for name in often if len(lean(name).encode()) >= bytes_ or lean(name).count("%(") >= parameters] == []


def test_comments_and_indentation_are_left_at_home() -> None:
    assert [name for name in VERBS if any(text in lean(name) for text in ("--", "  ", "\n"))] == []


def test_nothing_in_a_string_looks_like_a_comment() -> None:
    """Comments are taken out by their two dashes alone."""
    lines = [(name, line) for name, file in VERBS.items() for line in file.read_text().splitlines() if "--" in line]
    assert [(name, line) for name, line in lines if line.partition("--")[0].count("'") % 2] == []


def test_every_table_is_named_with_its_schema() -> None:
    """Whatever search_path a caller's connection has, the statement means our tables."""
    tables = {"queue", "message", "dead_letter", "event", "journal", "migration", "waiter", "leader", "redrive_job"}
    after = {"from", "into", "update", "join", "table"}
    for name in VERBS:
        words = lean(name).replace("(", " ").replace(")", " ").replace(",", " ").split()
        bare = {word for before, word in itertools.pairwise(words) if before in after}
        assert bare & tables == set(), name


def test_a_statement_that_stores_or_moves_a_message_wakes_sleepers_for_later_ones() -> None:
    """Without this a message waits for the next scan of a consumer, which may be a minute away."""
    for name in VERBS:
        text = lean(name)
        moves = "insert into tarry.message " in text or ("update tarry.message" in text and "due_at = " in text)
        assert not moves or "tarry.notify_waiters(" in text or "pg_notify('tarry'" in text, name


def test_every_include_names_a_fragment_and_every_fragment_is_included() -> None:
    """A fragment is a file whose name begins with an underscore: it is no statement of its own."""
    lines = [line for file in FILES.values() for line in file.read_text().splitlines() if "include" in line]
    included = [re.fullmatch(r" *-- include: (\S+)", line) for line in lines]
    assert all(included), lines
    code = " ".join(file.read_text() for file in FOLDER.rglob("*.py"))
    by_code = {name for name in FRAGMENTS if f'sql("{name}' in code}  # put into a statement by a program
    assert {line[1] for line in included if line} | by_code == FRAGMENTS


def test_an_included_fragment_is_part_of_the_statement() -> None:
    assert lean("messages/_conflict").startswith("on conflict (key, queue) do update set version")
    for verb in ("messages/offer", "analytics/sink/merge"):
        assert lean("messages/_conflict") in lean(verb)


def test_a_variant_has_lines_that_the_statement_has_not() -> None:
    assert VARIANTS.keys() == {"messages/poll:typed", "wakeup/wait:typed"}
    condition = " and c.type = %(type)s"
    assert condition not in lean("messages/poll")
    assert lean("messages/poll:typed").replace(condition, "") == lean("messages/poll")


def test_a_statement_for_one_message_takes_values_and_no_arrays() -> None:
    for verb in SINGLE:
        assert not re.search(r"%\(\w+\)s::\w+\[\]", lean(verb)), verb
        assert "unnest(" not in lean(verb), verb
        assert lean(verb).count("(values (%(") == lean(verb.removesuffix(":one")).count("unnest(%(") == 1, verb


def test_a_statement_for_one_message_is_the_statement_for_many() -> None:
    """Only the source of its rows differs, and the end, which counts and aggregates several; an ack of one also joins its
    queue, where one of many looks it up first."""
    joined = {
        "q as materialized ( select id, journal from tarry.queue where name = %(queue)s and deleted_at is null ), ": "",
        "as h(key, token, tid) where": "as h(key, token, tid) cross join tarry.queue q where",
        "from (select id from q) returning": "from q.id and q.name = %(queue)s and q.deleted_at is null returning",
        "m.consumer, coalesce(": "m.consumer, q.id as queue, q.journal, coalesce(",
        "from q cross join done d": "from done d cross join lateral (select d.queue as id, d.journal) q",
    }
    for verb, differences in (("messages/offer_fresh", {}), ("messages/ack", joined)):
        many, single = (text[: text.rindex(") select ")] for text in (lean(verb), lean(f"{verb}:one")))
        arrays = re.search(r"unnest\(.*?\[\]\)", many)[0]  # pyright: ignore[reportOptionalSubscript]
        for text, of_one in differences.items():
            assert many.count(text) == 1, text
            many = many.replace(text, of_one)
        assert single == many.replace(arrays, arrays.replace("unnest(", "(values (").replace("[]", "") + ")")
    assert lean("messages/_conflict") in lean("messages/offer:one")


def test_a_statement_for_one_message_aggregates_nothing() -> None:
    """The node of an aggregate costs as much as the two index entries of the message."""
    assert [verb for verb in SINGLE if re.search(r"\b(count|min|array_agg)\(|having", lean(verb))] == []


def test_every_column_has_a_name_of_its_own(server: Server) -> None:
    """Rows are decoded by name. A single column needs none."""
    with psycopg.connect(server.shared, autocommit=True) as conn:
        unnamed = {
            verb: columns for verb in VERBS.keys() - FRAGMENTS if not are_named(columns := [*described(conn, verb)])
        }
    assert unnamed == {}


def test_the_driver_knows_the_type_of_every_column(server: Server) -> None:
    """An array of our own domains would arrive as bytes."""
    with psycopg.connect(server.shared, autocommit=True) as conn:
        arrays = {oid for (oid,) in conn.execute("select oid from pg_type where typcategory = 'A' and oid >= 16384")}
        unknown = {verb for verb in VERBS.keys() - FRAGMENTS if arrays & {*described(conn, verb).values()}}
    assert unknown == set()


def described(conn: Connection[Any], verb: str) -> dict[str, int]:
    """The columns of a statement and their types, from the server."""
    text = lean(verb)
    parameters = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda name: f"${1 + parameters.index(name[1])}", text).replace("%%", "%")
    prepared = conn.pgconn.prepare(b"", numbered.encode())
    assert prepared.status == ExecStatus.COMMAND_OK, f"{verb}: {prepared.error_message.decode()}"
    result = conn.pgconn.describe_prepared(b"")
    columns = [((result.fname(i) or b"").decode(), result.ftype(i)) for i in range(result.nfields)]
    assert len(columns) < 2 or len(columns) == len(dict(columns)), verb
    return dict(columns)


def are_named(columns: list[str]) -> bool:
    return len(columns) < 2 or all(column.isidentifier() for column in columns)
