"""tarry db, doctor, version: the database and the installation."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Annotated, Any

from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.help import option
from tarry.edges.cli.output.printer import Cell, EntityView, TableColumn, entity_view
from tarry.edges.formats import instant, plural
from tarry.edges.secrets import without_secrets

if TYPE_CHECKING:
    from tarry.admin import CheckResult, MigrationStatus

_MIGRATIONS: EntityView[MigrationStatus] = entity_view(
    "tarry.db.status/1",
    "migrations",
    TableColumn("number", lambda status: f"{status.number:04}", right=True),
    TableColumn("migration", "name"),
    TableColumn("phase"),
    TableColumn("state", lambda status: Cell(status.state, _STYLES.get(status.state, "red"))),
    TableColumn("applied at", lambda status: instant(status.applied_at) if status.applied_at else ""),
)
_STYLES = {"applied": "green", "pending": "yellow", "ok": "green", "warning": "yellow"}


@command("db migrate", "tarry db migrate", "tarry db migrate --pre-only   # before a rolling deploy")
def migrate(
    cli: CommandSession,
    pre_only: Annotated[bool, option("--pre-only", "Omit migrations that require that no old version runs.")] = False,
) -> None:
    """Apply the pending migrations.

    Run it before the first use of a database and with every new version. Processes that run it at the same time take
    turns. The embedded database is always migrated.
    """
    from tarry import admin

    cli.prepare()
    applied, search_path = admin.migrate(cli.dsn, post=not pre_only)
    cli.listing(replace(_MIGRATIONS, schema="tarry.db.migrate/1", name="applied"), applied)
    cli.note(f"{plural(len(applied), 'migration')} applied" if applied else "the database is up to date")
    if search_path.warning:
        cli.warn(f"{search_path.actual}; {search_path.hint}")


@command("db status", "tarry db status", "tarry db status -o json")
def status(cli: CommandSession) -> ExitCode:
    """Show which migrations are applied and pending.

    Changes nothing. The exit code is 7 if the database is not up to date, for use in deploy scripts.
    """
    from tarry import admin

    cli.prepare()
    with admin.connection(cli.dsn) as conn:
        statuses = admin.statuses(conn)
    up_to_date = all(status.state == "applied" for status in statuses)
    cli.listing(_MIGRATIONS, statuses, more={"up_to_date": up_to_date})
    if any(status.state == "pending" for status in statuses):
        cli.note("hint: to apply the pending migrations: tarry db migrate")
    return ExitCode.OK if up_to_date else ExitCode.CHECK_FAILED


@command("db adopt", "tarry db adopt")
def adopt(cli: CommandSession) -> None:
    """Adopt a journal that was restored from a dump.

    Run it once after pg_restore, before anything else uses the database. Restored events have transaction numbers of
    the old server; live streams and the archive would omit them now and report them as new later. A second run changes
    nothing.
    """
    from tarry import admin

    cli.prepare()
    adopted = admin.adopt(cli.dsn)
    cli.printer.record("tarry.db.adopt/1", {"adopted": adopted})
    cli.note(f"{plural(adopted, 'event')} adopted" if adopted else "nothing to adopt: the journal is of this server")


@command("db sql", "tarry db sql > tarry.sql", "tarry db sql | psql mydatabase")
def sql(cli: CommandSession) -> None:
    """Print the schema as SQL; needs no database.

    For sites where schema changes are applied by another tool or team.
    """
    from tarry import admin

    text = admin.migrations.script()
    if cli.printer.for_people:
        sys.stdout.write(text.rstrip("\n") + "\n")
    else:
        cli.printer.record("tarry.db.sql/1", {"sql": text}, ())


@command("doctor", "tarry doctor", "tarry doctor --dsn postgresql://app@db/shop -o json")
def doctor(cli: CommandSession) -> ExitCode | None:
    """Check the database and this machine.

    Changes nothing. The exit code is 7 if a check failed, also if the database cannot be reached.
    """
    from tarry import admin

    cli.prepare()
    findings = admin.diagnose(cli.dsn)
    failed = [finding for finding in findings if not finding.ok]
    cli.listing(_CHECKS, findings, more={"ok": not failed})
    cli.note(f"{plural(len(failed), 'check')} failed" if failed else "all checks passed")
    return ExitCode.CHECK_FAILED if failed else None


def _hint(finding: CheckResult) -> str:
    return "" if finding.ok and not finding.warning else finding.hint


def _result(finding: CheckResult) -> Cell:
    result = "warning" if finding.warning else "ok" if finding.ok else "failed"
    return Cell(result, _STYLES.get(result, "red"))


def _check_data(finding: CheckResult) -> dict[str, Any]:
    return {
        "check": finding.check,
        "ok": finding.ok,
        "found": without_secrets(finding.actual),
        "warning": finding.warning,
        "hint": _hint(finding) or None,
    }


_CHECKS: EntityView[CheckResult] = entity_view(
    "tarry.doctor/1",
    "checks",
    TableColumn("check", style="bold"),
    TableColumn("result", _result),
    TableColumn("found", lambda finding: without_secrets(" ".join(finding.actual.split()))),
    TableColumn("hint", _hint),
    data=_check_data,
)


@command("version", "tarry version", "tarry version -o json")
def version(cli: CommandSession) -> None:
    """Show the version of Tarry.

    And of Python, for bug reports.
    """
    tarry, python = version_of("tarry"), ".".join(map(str, sys.version_info[:3]))
    cli.printer.record("tarry.version/1", {"tarry": tarry, "python": python})
