"""tarry version: what runs here."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of

import typer

from tarry.edges.cli.session import Session, command


def register(app: typer.Typer) -> None:
    command(app, "version", examples=("tarry version", "tarry version -o json"))(version)


def version(cli: Session) -> None:
    """Show the version of Tarry.

    And of the Python that runs it: both belong in a report of a problem.
    """
    tarry, python = version_of("tarry"), ".".join(map(str, sys.version_info[:3]))
    cli.printer.record("tarry.version/1", {"tarry": tarry, "python": python}, [("tarry", tarry), ("python", python)])
