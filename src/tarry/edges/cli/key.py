"""tarry key: who may use the broker."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tarry.core.keys import Action, ApiKey
from tarry.edges.cli.exits import NotFound
from tarry.edges.cli.help import group
from tarry.edges.cli.output import Column
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay, exact, instant

app = group("key", "Make, list and revoke API keys of the broker.")


class Allowed(StrEnum):
    READ = "read"
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    ALL = "all"


@command(
    app,
    "create",
    audited=True,
    examples=(
        "tarry key create shop --action produce --queue orders",
        "tarry key create workers --action consume --queue 'orders-*' --expires 90d",
        "tarry key create ops --action all",
    ),
)
def create(
    cli: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, for people.", show_default=False)],
    action: Annotated[
        list[Allowed], typer.Option("--action", metavar="ACTION", help="read, produce, consume, admin or all.")
    ],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="A queue, or a beginning and *; else all.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="After so long; else never.")
    ] = None,
) -> None:
    """Make an API key, and print it.

    It is printed this once, and stored nowhere: only its hash is. Clients send it as Authorization: Bearer KEY.
    """
    actions = list(Action) if Allowed.ALL in action else [Action(one.value) for one in action]
    expires_for = None if expires is None else delay(expires, "--expires")
    with cli.open() as opened:
        issued = opened.keys.create(name, actions, queue or ["*"], expires_for=expires_for)
        cli.audit_also(created_key=issued.key.id)
    cli.printer.record(
        "tarry.key/1", {**_data(issued.key), "key": issued.text}, [*_fields(issued.key), ("key", issued.text)]
    )
    cli.note("keep it now: it cannot be shown again")


@command(app, "list", examples=("tarry key list", "tarry key list -o jsonl | jq -r .id"))
def list_keys(cli: Session) -> None:
    """List API keys, revoked and expired ones too.

    Never their text: nobody has that but who was given it.
    """
    with cli.open() as opened:
        keys = opened.keys.list()
    columns = [Column(title) for title in ("id", "name", "may", "queues", "state", "created")]
    rows = [
        [key.id, key.name, " ".join(sorted(key.actions)), " ".join(key.queues), _state(key), instant(key.created_at)]
        for key in keys
    ]
    cli.printer.listing("tarry.key.list/1", {"keys": [_data(key) for key in keys]}, columns, rows)
    if not keys:
        cli.note("there is no key; the broker answers to this machine only: tarry key create")


@command(app, "revoke", audited=True, examples=("tarry key revoke 0a1b2c3d4e5f",))
def revoke(
    cli: Session, id: Annotated[str, typer.Argument(metavar="ID", help="See: tarry key list.", show_default=False)]
) -> None:
    """Revoke an API key.

    Brokers refuse it within two seconds. Revoking a revoked key changes nothing.
    """
    with cli.open() as opened:
        key = opened.keys.revoke(id) if id.isalnum() else None
    if key is None:
        raise NotFound("there is no key of this id", hint="see: tarry key list")
    cli.printer.record("tarry.key/1", _data(key), _fields(key))


def _state(key: ApiKey) -> str:
    return "active" if key.active else "revoked" if key.revoked_at is not None else "expired"


def _data(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "actions": sorted(key.actions),
        "queues": list(key.queues),
        "active": key.active,
        "created_at": exact(key.created_at),
        "expires_at": exact(key.expires_at),
        "revoked_at": exact(key.revoked_at),
    }


def _fields(key: ApiKey) -> list[tuple[str, str]]:
    return [
        ("id", key.id),
        ("name", key.name),
        ("may", " ".join(sorted(key.actions))),
        ("queues", " ".join(key.queues)),
        ("state", _state(key)),
    ]
