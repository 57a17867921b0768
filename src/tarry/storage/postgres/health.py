"""Database checks before the first message is stored. `connect` refuses an unfit database, `tarry doctor` explains why."""

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from tarry.core.errors import SchemaMismatch, UnsafeDatabase
from tarry.storage.postgres import migrate
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.journal import statements as journal_statements
from tarry.storage.postgres.schema_name import DEFAULT, schema_on

OLDEST_SERVER = 150_000


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    ok: bool
    actual: str
    hint: str = ""
    warning: bool = False
    """The database is usable, but the finding deserves attention."""


def findings(conn: Connection[Any]) -> list[CheckResult]:
    """Every check with its result, good or bad."""
    row = conn.execute(
        "select current_setting('server_version_num')::int, current_setting('server_version'), "
        "current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit'), "
        "current_setting('full_page_writes'), pg_is_in_recovery()"
    ).fetchone()
    assert row is not None  # noqa: S101 - a select without from has one row
    number, *words, standby = row
    version, encoding, fsync, synchronous_commit, full_page_writes = map(_text, words)
    return [
        CheckResult("server version", number >= OLDEST_SERVER, version, "Tarry needs PostgreSQL 15 or newer"),
        CheckResult("encoding", encoding == "UTF8", encoding, "create the database with encoding UTF8"),
        CheckResult("fsync", fsync == "on", fsync, "without fsync a crash loses accepted messages"),
        CheckResult("full_page_writes", full_page_writes == "on", full_page_writes, "a crash may corrupt the database"),
        CheckResult(
            "synchronous_commit",
            synchronous_commit != "off",
            synchronous_commit,
            "accepted would not mean stored: set it to on for this role or database",
        ),
        CheckResult("primary", not standby, "standby" if standby else "primary", "connect to the primary"),
    ]


def _text(word: str | bytes) -> str:
    """A database without an encoding (SQL_ASCII) returns bytes."""
    return word.decode() if isinstance(word, bytes) else word


def check_safety(conn: Connection[Any], *, allow_unsafe: bool = False) -> None:
    """Run before anything is created in the database."""
    bad = [finding for finding in findings(conn) if not finding.ok]
    if bad and not allow_unsafe:
        first = bad[0]
        raise UnsafeDatabase(
            "this database cannot keep Tarry's promises: " + ", ".join(f"{b.check} is {b.actual}" for b in bad),
            hint=f"{first.hint} (or accept the risk with allow_unsafe=True)",
        )


FOREIGN_JOURNAL = "the journal came with a dump: its events carry transaction numbers that lie ahead of this server"
ADOPT = "run once, before anything else uses the database: tarry db adopt"


def check_journal(conn: Connection[Any], *, allow_unsafe: bool = False) -> None:
    """Refuse a restored journal that was not adopted: old events would be read as new ones.

    Checks the first event only; `tarry doctor` checks all of them.
    """
    if not allow_unsafe and drive(conn, journal_statements.first_is_foreign().run()):
        raise UnsafeDatabase(FOREIGN_JOURNAL, hint=ADOPT)


def check_schema(conn: Connection[Any]) -> None:
    listed = migrate.unchanged(conn)
    missing = [status for status in listed if (status.state, status.phase) == ("pending", "pre")]
    if missing:
        schema = schema_on(conn)
        where, named = ("database", "") if schema == DEFAULT else (f"schema {schema}", f" --dsn '…?schema={schema}'")
        raise SchemaMismatch(
            f"the {where} lacks {len(missing)} of Tarry's migrations, the first is {missing[0].name}",
            hint=f"run: tarry db migrate{named}   (or tarry.connect(…, migrate=True))",
        )
    # A newer `pre` migration is compatible: this process is the old version in a rolling deploy.
    newer = [status for status in listed if (status.state, status.phase) == ("unknown", "post")]
    if newer:
        raise SchemaMismatch(
            f"the database belongs to a newer version of Tarry, which has applied {newer[0].name}",
            hint="use that version: its migrations cannot be reverted; see tarry db status",
        )
