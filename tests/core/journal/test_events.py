"""One word per event, in Python and in the database."""

from __future__ import annotations

from enum import Enum

import psycopg
import pytest

from tarry.core.journal.events import EventKind, JournalLevel
from tests.kit.servers import Server

# Data-modifying CTEs compare and sort by it nowhere, so the order of the labels is free; their set is not.
LABELS = "select enumlabel from pg_enum where enumtypid = %s::regtype"


@pytest.mark.parametrize(("kind", "name"), [(EventKind, "tarry.event_kind"), (JournalLevel, "tarry.journal_level")])
def test_the_enum_of_the_database_is_the_enum_of_the_core(server: Server, kind: type[Enum], name: str) -> None:
    with psycopg.connect(server.shared) as conn:
        labels = [label for (label,) in conn.execute(LABELS, (name,)).fetchall()]
    assert sorted(labels) == sorted(member.value for member in kind)


def test_events_are_past_participles_in_small_letters() -> None:
    assert all(kind.value == kind.name.lower() for kind in EventKind)
