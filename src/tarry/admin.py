"""What an operator does to a database as a whole: reach it, bring its schema up to date, examine it.

Beside `app.py` in the composition root: it joins storage to the edges, which may not import storage themselves.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, LiteralString
from zoneinfo import TZPATH

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.app import JOURNAL_DAYS_AHEAD
from tarry.core.errors import EmbeddedError, InvalidInput, Refused, SchemaMismatch, StoreUnavailable
from tarry.edges.env import dsn_from
from tarry.storage.postgres import health, queue_statements, upkeep_statements
from tarry.storage.postgres import migrate as migrations
from tarry.storage.postgres.connections import connected, keywords
from tarry.storage.postgres.drive import drive, transaction
from tarry.storage.postgres.health import Finding

LARGEST_SKEW = timedelta(seconds=2)
PARTITION_DAYS = 2
"""Today's and tomorrow's partition of the journal must be there: then midnight finds its place ready."""
HIDDEN = "***"
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_ANY_ZONE: LiteralString = "Europe/Berlin"
OLD_ZONES_YEARS = 2
"""Zone data of the year before last is old: some government has changed its mind since."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is: how to connect to it, and how to name it to people."""

    dsn: str
    embedded: bool

    @property
    def described(self) -> str:
        """Never with a password."""
        parts = conninfo_to_dict(self.dsn)
        shown = {name: HIDDEN if name in _SECRETS else value for name, value in parts.items()}
        text = make_conninfo("", **shown) or "as libpq's PG* variables say"
        return f"embedded PostgreSQL ({text})" if self.embedded else text


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    number: int
    name: str
    phase: str
    state: str
    """applied, pending, changed (applied with another content) or unknown (applied by a newer Tarry)."""
    applied_at: datetime | None = None


def check_dsn(dsn: str | None) -> None:
    """Refuse what cannot be a connection string. libpq would quote it, password and all, in its error."""
    named = dsn_from() if dsn is None else dsn
    try:
        keywords(named or "")
    except InvalidInput as error:
        # Without its cause, which would show in a traceback.
        raise InvalidInput(str(error), hint=error.hint) from None


@contextmanager
def reach(dsn: str | None) -> Generator[Place]:
    """The database that is meant, changing nothing in it. The embedded one runs for as long as the block."""
    named = dsn_from() if dsn is None else dsn
    if named is not None:
        yield Place(named, embedded=False)
        return
    from tarry.storage.postgres import embedded

    with embedded.start() as server:
        yield Place(server.dsn, embedded=True)


def connection(place: Place) -> AbstractContextManager[Connection[Any]]:
    return connected(place.dsn)


def ddl() -> str:
    """The whole schema as SQL, for people who apply changes with a tool of their own. Needs no database."""
    return migrations.script()


def migrate(place: Place, *, post: bool) -> list[MigrationStatus]:
    """Apply what is pending, make the journal's next partitions, and say what was applied."""
    with connection(place) as conn:
        done = {migration.number for migration in migrations.migrate(conn, post=post)}
        drive(conn, queue_statements.journal_partitions(JOURNAL_DAYS_AHEAD).run())
        return [status for status in statuses(conn) if status.number in done]


def adopt(place: Place) -> int:
    """Give a journal that came with a dump to this server, and say how many events that were. A second time does nothing."""
    with connection(place) as conn:
        health.check_safety(conn)
        health.check_schema(conn)
        with transaction(conn):
            return drive(conn, queue_statements.adopt_journal())


def statuses(conn: Connection[Any]) -> list[MigrationStatus]:
    applied: dict[int, Sequence[Any]] = {}
    row = conn.execute("select to_regclass('tarry.migration') is not null").fetchone()
    if row and row[0]:
        found = conn.execute("select number, name, checksum, applied_at from tarry.migration order by number")
        applied = {number: rest for number, *rest in found.fetchall()}
    known = {migration.number: migration for migration in migrations.known()}
    listed: list[MigrationStatus] = []
    for number in sorted(applied.keys() | known.keys()):
        migration, stored = known.get(number), applied.get(number)
        name = migration.name if migration else str(stored[0]) if stored else ""
        phase = migration.phase if migration else migrations.phase_of(name)
        if stored is None:
            state = "pending"
        elif migration is None:
            state = "unknown"
        else:
            state = "applied" if stored[1] == migration.checksum else "changed"
        listed.append(MigrationStatus(number, name, phase, state, stored[2] if stored else None))
    return listed


def diagnose(dsn: str | None) -> list[Finding]:
    """`examine`, also where the embedded server will not even start."""
    try:
        with reach(dsn) as place:
            return examine(place)
    except EmbeddedError as error:
        return [Finding("database", False, str(error), error.hint or "name another database: --dsn"), zones_here()]


def examine(place: Place) -> list[Finding]:
    """Every check, good or bad. A database that cannot be reached is a finding too."""
    found = [Finding("database", True, place.described)]
    try:
        with connection(place) as conn:
            found += [Finding("connection", True, "answers"), *health.findings(conn), _clock(conn), _pooler(conn)]
            found += _schema(conn)
            found += [zones_here(), _zones_there(conn)]
    except StoreUnavailable as error:
        found += [Finding("connection", False, str(error), error.hint or ""), zones_here()]
    except Refused as error:
        found.append(Finding("privileges", False, str(error), _GRANT))
    except (psycopg.Error, SchemaMismatch) as error:
        found.append(Finding("connection", False, f"broke off: {error}", "look into the log of the server"))
    return found


def _clock(conn: Connection[Any]) -> Finding:
    """The nearest of a few readings: what the network adds is not the clock's fault."""
    readings: list[tuple[timedelta, timedelta]] = []
    for _ in range(3):
        before, started = datetime.now(UTC), time.monotonic()
        row = conn.execute("select clock_timestamp()").fetchone()
        took = timedelta(seconds=time.monotonic() - started)
        assert row is not None  # noqa: S101 - a select without from has one row
        readings.append((took, row[0] - (before + took / 2)))
    took, skew = min(readings)
    text = f"the database is {abs(skew).total_seconds():.3f} s {'ahead' if skew > timedelta(0) else 'behind'}"
    return Finding(
        "clock skew",
        abs(skew) - took / 2 <= LARGEST_SKEW,
        text,
        "Tarry goes by the database's clock; set both by NTP, or give delays instead of times",
    )


def _pooler(conn: Connection[Any]) -> Finding:
    row = conn.execute("select pg_backend_pid()").fetchone()
    direct = row is not None and row[0] == conn.info.backend_pid
    return Finding("pooler", True, "none, direct connection" if direct else "connected through a pooler")


def _schema(conn: Connection[Any]) -> list[Finding]:
    listed = statuses(conn)
    odd = [status for status in listed if status.state != "applied"]
    if not odd:
        applied = Finding("migrations", True, f"{len(listed)} applied")
        privileges = _privileges(conn)
        found = [applied, privileges, *_journal(conn)]
        return [*found, _origin(conn), _vacuum(conn), _sweeper(conn)] if privileges.ok else found
    hint = "run: tarry db migrate"
    if any(status.state != "pending" for status in odd):
        hint = "this database belongs to another version of Tarry: use that one, or look at: tarry db status"
    return [Finding("migrations", False, ", ".join(f"{status.name} is {status.state}" for status in odd), hint)]


_GRANT = "connect as the owner of the schema tarry, or grant its tables and sequences to this role"
_TABLES = ("queue", "message", "dead_letter", "event", "waiter")
_LACKING: LiteralString = """
    select current_user, has_schema_privilege('tarry', 'create'), array(
        select c.relname::text from pg_class c
        where c.relnamespace = 'tarry'::regnamespace and case c.relkind
            when 'S' then c.relname in ('version_seq', 'event_seq') and not has_sequence_privilege(c.oid, 'usage')
            else c.relname = any (%s) and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                and (c.relname = 'event'
                    or has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))) end
        order by c.relname)
"""


def _privileges(conn: Connection[Any]) -> Finding:
    """What offering, polling and settling need."""
    role, creates, lacking = conn.execute(_LACKING, (list(_TABLES),)).fetchone() or ("", False, ["schema tarry"])
    partitions = "also make partitions" if creates else "not make partitions, which is for whoever migrates"
    return Finding(
        "privileges",
        not lacking,
        f"{role} may not use {', '.join(lacking)}" if lacking else f"{role} may read and write, and {partitions}",
        _GRANT,
    )


def _journal(conn: Connection[Any]) -> list[Finding]:
    row = conn.execute(
        "select count(*) filter (where to_regclass('tarry.event_' || to_char(day, 'YYYYMMDD')) is not null), "
        "exists (select from tarry.event_overflow) "
        "from generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %s, '1 day') day",
        (PARTITION_DAYS - 1,),
    ).fetchone()
    there, overflowing = row or (0, False)
    return [
        Finding(
            "journal partitions",
            there == PARTITION_DAYS,
            f"{there} of the next {PARTITION_DAYS} days have one",
            "run as a role that may create tables: tarry db migrate",
        ),
        Finding(
            "journal overflow",
            not overflowing,
            "has events" if overflowing else "empty",
            "events of a day without partition; a few move when it is made, many stay until the pipeline prunes them",
        ),
    ]


def _origin(conn: Connection[Any]) -> Finding:
    is_foreign = health.journal_is_foreign(conn)
    found = health.FOREIGN_JOURNAL if is_foreign else "of this server"
    return Finding("journal origin", not is_foreign, found, health.ADOPT)


def _vacuum(conn: Connection[Any]) -> Finding:
    strains = drive(conn, upkeep_statements.strains().run())
    if not strains:
        return Finding("vacuum", True, "nothing holds it back")
    return Finding("vacuum", False, "; ".join(strain.found for strain in strains), strains[0].hint)


def _sweeper(conn: Connection[Any]) -> Finding:
    """Never a failure: deliveries do not need one."""
    leader = drive(conn, upkeep_statements.leader("sweeper", None).run())
    return Finding("sweeper", True, "none runs" if leader is None else f"{leader.holder} leads")


def zones_here(paths: Sequence[str] | None = None) -> Finding:
    """By which data schedules are planned. Old data is a warning: most zones have not changed since."""
    version, place = _zone_data(TZPATH if paths is None else paths)
    if place is None:
        return Finding("time zones here", False, "missing", "install tzdata: pip install tzdata")
    if version is None:
        return Finding("time zones here", True, f"present, of an unknown version ({place})")
    if datetime.now(UTC).year - int(version[:4]) < OLD_ZONES_YEARS:
        return Finding("time zones here", True, f"{version} ({place})")
    return Finding(
        "time zones here",
        True,
        f"{version} ({place}), which is old",
        "schedules go by it: update tzdata of the system, or let Python use the package with PYTHONTZPATH=''",
        warning=True,
    )


def _zone_data(paths: Sequence[str]) -> tuple[str | None, str | None]:
    """The version of the zone data that Python uses, and where it is: the system's comes first, then the package's."""
    for directory in paths:
        if (Path(directory) / _ANY_ZONE).exists():
            for name in ("tzdata.zi", "+VERSION", "version"):
                if found := _version_in(Path(directory) / name):
                    return found, directory
            return None, directory
    try:
        return _year_and_letter(version_of("tzdata")), "the package tzdata"
    except PackageNotFoundError:
        return None, None


def _version_in(file: Path) -> str | None:
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            found = re.search(r"\b(20[0-9]{2}[a-z])\b", opened.readline())
    except OSError:
        return None
    return found[1] if found else None


def _year_and_letter(version: str) -> str:
    """The package counts 2026.2 where the data is called 2026b."""
    year, _, number = version.partition(".")
    return year + (chr(ord("a") + int(number) - 1) if number.isdigit() and 0 < int(number) <= 26 else "")


def _zones_there(conn: Connection[Any]) -> Finding:
    try:
        conn.execute("select now() at time zone %s", (_ANY_ZONE,))
    except psycopg.DataError:
        return Finding("time zones there", False, "missing", "install tzdata on the server of the database")
    return Finding("time zones there", True, "present")
