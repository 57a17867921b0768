"""What holds for every SQL file, whatever it says."""

from __future__ import annotations

import itertools
from importlib.resources import files
from typing import LiteralString, cast

import pytest
from psycopg import _queries

from tarry.storage.postgres import statement

FOLDER = files("tarry.storage.postgres").joinpath("sql")
VERBS = sorted(file.name.removesuffix(".sql") for file in FOLDER.iterdir() if file.name.endswith(".sql"))


def lean(verb: str) -> str:
    return statement.sql(cast("LiteralString", verb))


@pytest.mark.parametrize("verb", VERBS)
def test_a_statement_is_short_enough_for_the_driver_to_remember_its_translation(verb: str) -> None:
    """Beyond this the driver parses the text anew with every call, which costs more than the server does."""
    assert len(lean(verb).encode()) < _queries.MAX_CACHED_STATEMENT_LENGTH
    assert lean(verb).count("%(") < _queries.MAX_CACHED_STATEMENT_PARAMS


@pytest.mark.parametrize("verb", VERBS)
def test_comments_and_indentation_are_left_at_home(verb: str) -> None:
    assert "--" not in lean(verb)
    assert "  " not in lean(verb)
    assert "\n" not in lean(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_in_a_string_looks_like_a_comment(verb: str) -> None:
    """Comments are taken out by their two dashes alone."""
    for line in FOLDER.joinpath(f"{verb}.sql").read_text().splitlines():
        before, dashes, _ = line.partition("--")
        assert not dashes or before.count("'") % 2 == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_table_is_named_with_its_schema(verb: str) -> None:
    """Whatever search_path a caller's connection has, the statement means our tables."""
    words = lean(verb).replace("(", " ").replace(")", " ").replace(",", " ").split()
    tables = {"queue", "message", "dead_letter", "event", "journal", "migration", "waiter", "leader", "redrive_job"}
    after = {"from", "into", "update", "join", "table"}
    named = {word for before, word in itertools.pairwise(words) if before in after}
    assert named & tables == set()


@pytest.mark.parametrize("verb", VERBS)
def test_what_stores_a_message_or_moves_it_wakes_those_who_sleep_for_later(verb: str) -> None:
    """Without this a message waits for somebody's scan, which may be a minute away."""
    text = lean(verb)
    moves = "insert into tarry.message " in text or ("update tarry.message" in text and "due_at = " in text)
    assert not moves or "pg_notify('tarry'" in text
