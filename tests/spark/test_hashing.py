"""The lake computes the hashes of PostgreSQL: of any text, and of any event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.app import App
from tarry.core.events import EventKind
from tarry.core.windows import Scan
from tarry.edges.spark.hashing import COLUMNS, event_hash, text_hash
from tests.kit.servers import Server
from tests.kit.spark import write_events

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def conn(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.shared, autocommit=True) as conn:
        yield conn


@given(texts=st.lists(TEXTS | st.none(), min_size=1, max_size=30), seed=st.sampled_from([0, 1, 17, 2**40 + 3]))
def test_a_text_has_the_hash_that_postgresql_gives_it(
    conn: psycopg.Connection[Any], texts: list[str | None], seed: int
) -> None:
    expected = conn.execute(
        'select coalesce(hashtextextended(t collate "C", %s), 0) from unnest(%s::text[]) with ordinality u(t, n) order by n',
        (seed, texts),
    ).fetchall()
    found = [0 if text is None else int(h) for text, h in zip(texts, text_hash(pa.array(texts), seed), strict=True)]
    assert found == [row[0] % 2**64 for row in expected]


def test_long_texts_are_hashed_in_small_groups(conn: psycopg.Connection[Any]) -> None:
    texts = ["x" * n for n in (0, 1, 100_000, 11, 12, 13, 24)] * 90
    expected = conn.execute(
        "select hashtextextended(t, 5) from unnest(%s::text[]) with ordinality u(t, n) order by n", (texts,)
    ).fetchall()
    assert [int(h) for h in text_hash(pa.array(texts), 5)] == [row[0] % 2**64 for row in expected]


def test_a_slice_of_an_array_is_hashed_as_such() -> None:
    whole = pa.array(["a", None, "bb", "ccc" * 9, None, "d"])
    assert list(text_hash(whole.slice(2, 3), 3))[:2] == list(text_hash(whole, 3))[2:4]


def test_every_column_of_an_event_is_part_of_its_hash(pipeline_app: App) -> None:
    pipeline_app.queue("q").offer("a", 1)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        write_events(conn, 200)
        _scatter(conn)
    windows = pipeline_app.pipeline.windows
    (piece,) = windows.slices(Scan(table="events", columns=COLUMNS), None)
    (batch,) = windows.batches(piece)
    with psycopg.connect(pipeline_app.dsn) as conn:
        expected = dict(conn.execute("select id, tarry.event_hash(e) from tarry.event e").fetchall())
    hashes = event_hash(batch)
    assert {i: int(h) for i, h in zip(batch.column("id").to_pylist(), hashes, strict=True)} == {
        i: h % 2**64 for i, h in expected.items()
    }
    for name in COLUMNS:
        other = batch.set_column(
            batch.schema.get_field_index(name), name, pa.nulls(batch.num_rows, batch.column(name).type)
        )
        assert (event_hash(other) != hashes).any(), name


def _scatter(conn: psycopg.Connection[Any]) -> None:
    """Every column with every kind of value, nulls among them."""
    conn.execute(
        """
        update tarry.event set
            kind = (%(kinds)s::text[])[1 + id %% %(n)s]::tarry.event_kind,
            key = case when id %% 7 > 0 then repeat(md5(id::text), (id %% 5)::int) || 'Grüße' end,
            version = case when id %% 3 > 0 then (id - 100) * 123456789012 end,
            attempt = case when id %% 4 > 0 then id - 50 end, priority = case when id %% 5 > 0 then id %% 10 end,
            size = case when id %% 6 > 0 then id * 1000 end,
            due_at = case when id %% 3 > 0 then '1950-01-01Z'::timestamptz + id * interval '1 year 1.000001 s' end,
            leased_at = case when id %% 4 > 0 then now() end, lease_until = case when id %% 5 > 0 then now() end,
            consumer = case when id %% 2 > 0 then 'c' || id %% 9 end,
            payload_hash = case when id %% 3 > 0 then substr(sha256(id::text::bytea), 1, 8) end,
            error = case when id %% 5 = 0 then repeat('boom ', id::int) end,
            detail = case when id %% 6 = 0 then jsonb_build_object('n', id, 'text', 'ü "x"') end,
            payload = case when id %% 7 = 0 then convert_to(repeat(id::text, (id * 10)::int), 'UTF8') end
        """,
        {"kinds": [kind.value for kind in EventKind], "n": len(EventKind)},
    )
