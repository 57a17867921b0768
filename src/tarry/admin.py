"""Database administration for the command line: connect, migrate, adopt a journal, diagnose.

Part of the composition root, like `app.py`: edges may not import storage.
"""

import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from zoneinfo import TZPATH

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.app import JOURNAL_DAYS_AHEAD
from tarry.core.errors import EmbeddedError, InvalidInput, InvalidState, SchemaMismatch, StoreUnavailable
from tarry.edges.env import dsn_from, libpq_dsn, redis_url_from
from tarry.storage.postgres import health
from tarry.storage.postgres import migrate as migrations
from tarry.storage.postgres._sync.runner import drive, transaction
from tarry.storage.postgres.connections import connected, keywords
from tarry.storage.postgres.health import CheckResult
from tarry.storage.postgres.journal import pruning
from tarry.storage.postgres.journal import statements as journal_statements
from tarry.storage.postgres.maintenance import role as maintenance
from tarry.storage.postgres.migrate import MigrationStatus, statuses
from tarry.storage.postgres.schema_name import schema_on
from tarry.storage.postgres.statement import bind

LARGEST_SKEW = timedelta(seconds=2)
PARTITION_DAYS = 2
"""Journal partitions must exist for this many days, today included."""
HIDDEN = "***"
EMBEDDED = "embedded PostgreSQL"
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_ANY_ZONE: LiteralString = "Europe/Berlin"
OLD_ZONES_YEARS = 2
"""Age at which zone data is reported as old: zones change every year."""


def check_dsn(dsn: str | None) -> None:
    """Refuse an invalid connection string: libpq would quote it with its password in an error."""
    if redis_url_from(dsn) is not None:
        return  # redis-py does not quote passwords
    named = dsn_from() if dsn is None else libpq_dsn(dsn)
    try:
        keywords(named or "")
    except InvalidInput as error:
        # Drop the cause: a traceback would show it, and with it the password.
        raise InvalidInput(error.message, hint=error.hint) from None


@contextmanager
def _reach(dsn: str | None) -> Generator[tuple[str, str]]:
    """Yield the DSN of the chosen database and a description without secrets. An embedded server runs until the block
    exits."""
    if redis_url_from(dsn) is not None:
        raise InvalidInput(
            "this command is about a PostgreSQL database, and the DSN is one of Redis",
            hint="a Redis has no schema to migrate; connecting checks whether it keeps accepted messages",
        )
    named = dsn_from() if dsn is None else libpq_dsn(dsn)
    if named is not None:
        yield named, described(named)
        return
    from tarry.storage.postgres import embedded

    with embedded.start() as server:
        yield server.dsn, f"{EMBEDDED} ({described(server.dsn)})"


def missing_embedded_home() -> Path | None:
    """The directory in which an embedded database will be created, or None if there is one."""
    from tarry.storage.postgres import embedded

    return embedded.missing_home()


def described(dsn: str) -> str:
    shown = {name: HIDDEN if name in _SECRETS else value for name, value in conninfo_to_dict(dsn).items()}
    return make_conninfo("", **shown) or "from libpq's PG* variables"


@contextmanager
def connection(dsn: str | None) -> Generator[Connection[Any]]:
    """Connect to the chosen database without changing it."""
    with _reach(dsn) as (reached, _), connected(reached) as conn:
        yield conn


def migrate(dsn: str | None, *, post: bool) -> tuple[list[MigrationStatus], CheckResult]:
    """Apply pending migrations and create the next journal partitions. Returns the applied migrations and the search path
    check, whose result the new schema may change."""
    with connection(dsn) as conn:
        done = {migration.number for migration in migrations.migrate(conn, post=post)}
        drive(conn, journal_statements.create_partitions(JOURNAL_DAYS_AHEAD).run())
        return [status for status in statuses(conn) if status.number in done], search_path(conn)


def adopt(dsn: str | None) -> int:
    """Adopt a journal restored from a dump; returns the number of events. A second call changes nothing."""
    with connection(dsn) as conn:
        health.check_safety(conn)
        health.check_schema(conn)
        with transaction(conn):
            return drive(conn, journal_statements.adopt())


def search_path(conn: Connection[Any]) -> CheckResult:
    """Check whether tables that an application creates with this role would land in Tarry's schema. `"$user"` comes first in
    the default search path, so they would for a role named tarry."""
    row = conn.execute(
        "select current_schema(), current_user, (select source from pg_settings where name = 'search_path')"
    ).fetchone()
    schema, role, source = row or (None, "", "")
    if schema != schema_on(conn):
        return CheckResult("search path", True, f"new tables are created in {schema or 'no schema'}")
    actual = f"tables that the role {role} creates without a schema are created among those of Tarry"
    hint = f"use a role with another name, or: alter role {role} set search_path = public"
    if source == "client":
        hint = "remove the search_path from PGOPTIONS, or from the options of the address: Tarry needs none"
    return CheckResult("search path", True, actual, hint, warning=True)


def diagnose(dsn: str | None) -> list[CheckResult]:
    """Run every check. A database that cannot be started or reached is also a finding."""
    findings: list[CheckResult] = []
    try:
        with _reach(dsn) as (reached, described):
            findings.append(CheckResult("database", True, described))
            with connected(reached) as conn:
                findings += [
                    CheckResult("connection", True, "works"),
                    *health.findings(conn),
                    search_path(conn),
                    _clock(conn),
                    _pooler(conn),
                ]
                findings += _schema(conn, is_embedded=described.startswith(EMBEDDED))
                findings += [zones_here(), _zones_there(conn)]
    except EmbeddedError as error:
        return [
            CheckResult("database", False, error.message, error.hint or "name another database: --dsn"),
            zones_here(),
        ]
    except StoreUnavailable as error:
        hint = "check the address, the user and the password, and that the server runs"
        findings += [CheckResult("connection", False, error.message, hint), zones_here()]
    except InvalidState as error:
        findings.append(CheckResult("privileges", False, str(error), _GRANT))
    except (psycopg.Error, SchemaMismatch) as error:
        findings.append(CheckResult("connection", False, f"was lost: {error}", "see the log of the server"))
    return findings


def _clock(conn: Connection[Any]) -> CheckResult:
    """Measure the clock skew with the fastest of three readings, to exclude network delay."""
    readings: list[tuple[timedelta, timedelta]] = []
    for _ in range(3):
        before, started = datetime.now(UTC), time.monotonic()
        row = conn.execute("select clock_timestamp()").fetchone()
        round_trip = timedelta(seconds=time.monotonic() - started)
        assert row is not None  # noqa: S101 - a select without from has one row
        readings.append((round_trip, row[0] - (before + round_trip / 2)))
    round_trip, skew = min(readings)
    text = f"the database is {abs(skew).total_seconds():.3f} s {'ahead' if skew > timedelta(0) else 'behind'}"
    return CheckResult(
        "clock skew",
        abs(skew) - round_trip / 2 <= LARGEST_SKEW,
        text,
        "Tarry uses the database's clock: synchronize both with NTP, or use --after instead of --at",
    )


def _pooler(conn: Connection[Any]) -> CheckResult:
    row = conn.execute("select pg_backend_pid()").fetchone()
    direct = row is not None and row[0] == conn.info.backend_pid
    return CheckResult("pooler", True, "none, direct connection" if direct else "connected through a pooler")


def _schema(conn: Connection[Any], *, is_embedded: bool) -> list[CheckResult]:
    listed = statuses(conn)
    odd = [status for status in listed if status.state != "applied"]
    if not odd:
        applied = CheckResult("migrations", True, f"{len(listed)} applied")
        privileges = _privileges(conn)
        findings = [applied, privileges, *_journal(conn)]
        return (
            [*findings, _origin(conn), _retention(conn), _vacuum(conn), _sweeper(conn)] if privileges.ok else findings
        )
    if is_embedded and all(status.state == "pending" for status in listed):
        return [CheckResult("migrations", True, "none yet: the first use creates the tables")]
    hint = "run: tarry db migrate"
    if any(status.state != "pending" for status in odd):
        hint = "this database belongs to another version of Tarry: use that version; see: tarry db status"
    return [CheckResult("migrations", False, ", ".join(f"{status.name} is {status.state}" for status in odd), hint)]


_GRANT = "connect as the owner of Tarry's schema, or grant its tables and sequences to this role"
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


def _privileges(conn: Connection[Any]) -> CheckResult:
    """Check the privileges needed to offer, poll and settle."""
    role, creates, lacking = conn.execute(_LACKING, (list(_TABLES),)).fetchone() or ("", False, ["the schema"])
    partitions = "also create partitions" if creates else "not create partitions, which the migrating role does"
    return CheckResult(
        "privileges",
        not lacking,
        f"{role} may not use {', '.join(lacking)}" if lacking else f"{role} may read and write, and {partitions}",
        _GRANT,
    )


def _journal(conn: Connection[Any]) -> list[CheckResult]:
    row = conn.execute(
        "select count(*) filter (where to_regclass('tarry.event_' || to_char(day, 'YYYYMMDD')) is not null), "
        "exists (select from tarry.event_overflow) "
        "from generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %s, '1 day') day",
        (PARTITION_DAYS - 1,),
    ).fetchone()
    partitions, overflowing = row or (0, False)
    return [
        CheckResult(
            "journal partitions",
            partitions == PARTITION_DAYS,
            f"{partitions} of the next {PARTITION_DAYS} days have a partition",
            "run as a role that may create tables: tarry db migrate",
        ),
        CheckResult(
            "journal overflow",
            not overflowing,
            "has events" if overflowing else "empty",
            "events of days without a partition; few move when it is created, many stay until the pipeline prunes them",
        ),
    ]


def _origin(conn: Connection[Any]) -> CheckResult:
    with transaction(conn):
        is_foreign = drive(conn, journal_statements.is_foreign())
    origin = health.FOREIGN_JOURNAL if is_foreign else "this server"
    return CheckResult("journal origin", not is_foreign, origin, health.ADOPT)


_MAY_PRUNE: LiteralString = """
    select has_table_privilege('tarry.archive_batch', 'select') and has_table_privilege('tarry.event_overflow', 'select')
"""


def _retention(conn: Connection[Any]) -> CheckResult:
    """Warn about journal days kept only for lakes: an unused lake would prevent pruning forever."""
    row = conn.execute(_MAY_PRUNE).fetchone()
    if row is None or not row[0]:
        return CheckResult("journal retention", True, "only a role that may read the archive can check it")
    expired, lakes = drive(conn, pruning.waiting())
    if not expired or not lakes:
        return CheckResult("journal retention", True, "waits for no lake")
    since = (f"{lake} (last archived {f'{at:%Y-%m-%d %H:%M} UTC' if at else 'never'})" for lake, at in lakes.items())
    return CheckResult(
        "journal retention",
        True,
        f"days that no queue retains: {expired}, kept for {', '.join(since)}",
        "run: tarry journal prune; if a lake is no longer used, first: tarry pipeline abandon LAKE",
        warning=True,
    )


def _vacuum(conn: Connection[Any]) -> CheckResult:
    problems = drive(conn, bind("maintenance/vacuum_health", maintenance.vacuum_problems).run())
    if not problems:
        return CheckResult("vacuum", True, "not blocked")
    return CheckResult("vacuum", False, "; ".join(problem.detail for problem in problems), problems[0].hint)


def _sweeper(conn: Connection[Any]) -> CheckResult:
    """Report the current sweeper. Information only: deliveries need none."""
    leader = drive(conn, bind("maintenance/leader", maintenance.held_leadership, name="sweeper", now=None).run())
    return CheckResult("sweeper", True, "none is running" if leader is None else f"{leader.holder} leads")


def zones_here(paths: Sequence[str] | None = None) -> CheckResult:
    """Check the zone data used to plan schedules. Old data is only a warning: few zones change."""
    version, location = _zone_data(TZPATH if paths is None else paths)
    if location is None:
        return CheckResult("time zones here", False, "missing", "install tzdata: pip install tzdata")
    if version is None:
        return CheckResult("time zones here", True, f"present, of an unknown version ({location})")
    is_old = datetime.now(UTC).year - int(version[:4]) >= OLD_ZONES_YEARS
    actual = f"{version} ({location}){', which is old' if is_old else ''}"
    hint = "schedules use it: update tzdata of the system, or use the Python package with PYTHONTZPATH=''"
    return CheckResult("time zones here", True, actual, hint, warning=is_old)


def _zone_data(paths: Sequence[str]) -> tuple[str | None, str | None]:
    """Version and location of the zone data that Python uses: the system's first, then the package's."""
    for directory in paths:
        if (Path(directory) / _ANY_ZONE).exists():
            for name in ("tzdata.zi", "+VERSION", "version"):
                if version := _version_in(Path(directory) / name):
                    return version, directory
            return None, directory
    try:
        from tzdata import IANA_VERSION
    except ImportError:
        return None, None
    return IANA_VERSION, "the package tzdata"


def _version_in(file: Path) -> str | None:
    try:
        with file.open(encoding="ascii", errors="replace") as opened:
            match = re.search(r"\b(20[0-9]{2}[a-z])\b", opened.readline())
    except OSError:
        return None
    return match[1] if match else None


def _zones_there(conn: Connection[Any]) -> CheckResult:
    try:
        conn.execute("select now() at time zone %s", (_ANY_ZONE,))
    except psycopg.DataError:
        return CheckResult("time zones there", False, "missing", "install tzdata on the database server")
    return CheckResult("time zones there", True, "present")
