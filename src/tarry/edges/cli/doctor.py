"""tarry doctor: is this database, and this machine, fit for Tarry?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.output import Cell, Column
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural, without_secrets

if TYPE_CHECKING:
    from tarry.upkeep import Finding

_COLUMNS = (Column("check", style="bold"), Column("result"), Column("found"), Column("hint"))


def register(app: typer.Typer) -> None:
    command(app, "doctor", examples=("tarry doctor", "tarry doctor --dsn postgresql://app@db/shop -o json"))(doctor)


def doctor(cli: Session) -> ExitCode | None:
    """Check the database and this machine.

    Run it first when something is odd. It changes nothing, and ends with 7 if a check failed, also if the database
    cannot be reached.
    """
    from tarry import upkeep

    cli.prepare()
    findings = upkeep.diagnose(cli.dsn)
    failed = [finding for finding in findings if not finding.ok]
    cli.printer.listing(
        "tarry.doctor/1",
        {
            "checks": [
                {
                    "check": finding.check,
                    "ok": finding.ok,
                    "found": without_secrets(finding.found),
                    "warning": finding.warning,
                    "hint": None if finding.ok and not finding.warning else finding.hint or None,
                }
                for finding in findings
            ]
        },
        _COLUMNS,
        [
            [
                finding.check,
                _result(finding),
                without_secrets(" ".join(finding.found.split())),
                "" if finding.ok and not finding.warning else finding.hint,
            ]
            for finding in findings
        ],
        more={"ok": not failed},
    )
    if not failed:
        cli.note("everything is as it should be")
        return None
    cli.note(f"{plural(len(failed), 'check')} failed")
    return ExitCode.CHECK_FAILED


def _result(finding: Finding) -> Cell:
    if finding.warning:
        return Cell("warning", "yellow")
    return Cell("ok", "green") if finding.ok else Cell("failed", "red")
