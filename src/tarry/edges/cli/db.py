"""tarry db: the schema of the database."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.help import group
from tarry.edges.cli.output import Cell, Column
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import exact, instant

app = group("db", "Create and check the tables that Tarry needs.")

_STYLES = {"applied": "green", "pending": "yellow"}
_COLUMNS = (Column("number", right=True), Column("migration"), Column("phase"), Column("state"), Column("applied at"))


@command(app, "migrate", examples=("tarry db migrate", "tarry db migrate --pre-only   # before a rolling deploy"))
def migrate(
    cli: Session,
    pre_only: Annotated[
        bool, typer.Option("--pre-only", help="Leave out what must wait until no old version runs.")
    ] = False,
) -> None:
    """Apply the migrations that are missing.

    Run it once before the first use of a database, and with every new version. Any number of processes may run it at
    the same time; they take turns. The embedded database is always migrated.
    """
    from tarry import upkeep

    cli.prepare()
    with upkeep.reach(cli.dsn) as place:
        done = upkeep.migrate(place, post=not pre_only)
    cli.printer.listing(
        "tarry.db.migrate/1", {"applied": [_data(status) for status in done]}, _COLUMNS, [_row(s) for s in done]
    )
    cli.note(f"{plural(len(done), 'migration')} applied" if done else "nothing to apply: the database is up to date")


@command(app, "status", examples=("tarry db status", "tarry db status -o json"))
def status(cli: Session) -> ExitCode:
    """Show which migrations are applied and pending.

    Changes nothing. Ends with 7 if something is pending, so that a deploy can check before it goes on.
    """
    from tarry import upkeep

    cli.prepare()
    with upkeep.reach(cli.dsn) as place, upkeep.connection(place) as conn:
        listed = upkeep.statuses(conn)
    good = all(status.state == "applied" for status in listed)
    cli.printer.listing(
        "tarry.db.status/1",
        {"migrations": [_data(status) for status in listed]},
        _COLUMNS,
        [_row(s) for s in listed],
        more={"up_to_date": good},
    )
    if any(status.state == "pending" for status in listed):
        cli.note("hint: apply what is pending: tarry db migrate")
    return ExitCode.OK if good else ExitCode.CHECK_FAILED


@command(app, "adopt", examples=("tarry db adopt",))
def adopt(cli: Session) -> None:
    """Take over a journal that was restored from a dump.

    Run it once after pg_restore, before anything else uses the database. The events of a dump carry the transaction
    numbers of the server they came from; live streams and the archive would leave them out, and report them as new
    later. A second run changes nothing.
    """
    from tarry import upkeep

    cli.prepare()
    with upkeep.reach(cli.dsn) as place:
        adopted = upkeep.adopt(place)
    cli.printer.record("tarry.db.adopt/1", {"adopted": adopted}, (("events adopted", f"{adopted:,}"),))
    cli.note(f"{plural(adopted, 'event')} adopted" if adopted else "nothing to adopt: the journal is this server's own")


@command(app, "sql", examples=("tarry db sql > tarry.sql", "tarry db sql | psql mydatabase"))
def sql(cli: Session) -> None:
    """Print the schema as SQL; needs no database.

    For places where schema changes are applied by another tool, or by another person.
    """
    from tarry import upkeep

    text = upkeep.ddl()
    if cli.printer.for_people:
        cli.printer.verbatim(text.rstrip("\n"))
    else:
        cli.printer.record("tarry.db.sql/1", {"sql": text}, ())


def _data(status: Any) -> dict[str, Any]:
    return {
        "number": status.number,
        "name": status.name,
        "phase": status.phase,
        "state": status.state,
        "applied_at": exact(status.applied_at),
    }


def _row(status: Any) -> list[str | Cell]:
    applied_at = instant(status.applied_at) if status.applied_at else ""
    state = Cell(status.state, _STYLES.get(status.state, "red"))
    return [f"{status.number:04}", status.name, status.phase, state, applied_at]
