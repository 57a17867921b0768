"""Moving to another server as documented: dump, restore, adopt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import tarry
from tarry.core.errors import UnsafeDatabase
from tarry.core.journal.snapshots import BEGINNING, Window
from tarry.pipeline import pipeline_on
from tests.docs.pages import blocks
from tests.storage.postgres.fallible import fallible_server

PAGE = Path(__file__).parents[3] / "docs/howto/run-the-embedded-database.md"
_BURN = "do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$"


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """An empty database of a server that has begun few transactions."""
    with fallible_server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("create database moved template template0 encoding 'UTF8'")
        yield make_conninfo(server.dsn, dbname="moved")


def commands() -> list[str]:
    (block,) = [block for block in blocks(PAGE) if "pg_restore" in block.text]
    return [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_after_the_documented_move_old_events_are_old_and_new_ones_are_tailed(
    database: str, elsewhere: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_BURN)
        bindir = conn.execute("select setting from pg_config where name = 'BINDIR'").fetchone()
    assert bindir is not None
    with tarry.connect(database) as app:
        for n in range(20):
            app.queue("q").offer(f"old-{n}", n)
    path = os.pathsep.join([bindir[0], str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {"OLD_DSN": database, "TARRY_DSN": elsewhere, "PATH": path}
    dump, restore, adopt, doctor = commands()
    for command in (dump, restore):
        done = run(command, tmp_path, **environ)
        assert done.returncode == 0, done.stderr

    with pytest.raises(UnsafeDatabase, match="came with a dump") as refused, tarry.connect(elsewhere):
        pass
    assert "tarry db adopt" in (refused.value.hint or "")
    examined = run(doctor, tmp_path, **environ)
    assert examined.returncode == 7
    assert "tarry db adopt" in examined.stdout

    done = run(adopt, tmp_path, **environ)
    assert (done.returncode, "21 events adopted" in done.stdout + done.stderr) == (0, True), done.stderr
    again = run(adopt, tmp_path, **environ)
    assert "nothing to adopt" in again.stdout + again.stderr
    assert "came with a dump" not in run(doctor, tmp_path, **environ).stdout

    with tarry.connect(elsewhere) as app:
        windows = pipeline_on(elsewhere).windows
        archived = windows.digest(Window(BEGINNING, windows.edge()))
        assert sum(digest.rows for digest in archived.values()) == 21
        start = app.store.run(app.store.journal.tail(None)).position
        with psycopg.connect(elsewhere, autocommit=True) as conn:
            conn.execute(_BURN)  # as far as the old server was, and further
        app.queue("q").offer("new", 1)
        page = app.store.run(app.store.journal.tail(start))
        assert (page.gap, [event.key for _, event in page.events]) == (None, ["new"])
        assert len(app.queue("q").try_poll_many(100)) == 21
