"""tarry key, audit: API keys of the broker, and the audit log."""

from typing import Annotated

from tarry.core.security.api_keys import Action, ApiKey
from tarry.core.security.audit import Audited
from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import NotFound
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Limit, one_of, parsed
from tarry.edges.cli.output.printer import EntityView, TableColumn, entity_view
from tarry.edges.formats import delay, instant
from tarry.wire.base import data_of

_ALL = "all"


def _state(key: ApiKey) -> str:
    return "active" if key.active else "revoked" if key.revoked_at is not None else "expired"


_KEYS: EntityView[ApiKey] = entity_view(
    "tarry.key.list/1",
    "keys",
    TableColumn("id"),
    TableColumn("name"),
    TableColumn("actions", lambda key: " ".join(sorted(key.actions))),
    TableColumn("queues", lambda key: " ".join(key.queues)),
    TableColumn("state", _state),
    TableColumn("created", lambda key: instant(key.created_at)),
)
_AUDIT: EntityView[Audited] = entity_view(
    "tarry.audit.list/1",
    "audit",
    TableColumn("id", right=True),
    TableColumn("at (UTC)", lambda row: instant(row.at)),
    TableColumn("actor"),
    TableColumn("action"),
    TableColumn("queue"),
    TableColumn("status", right=True),
)


@command(
    "key create",
    "tarry key create shop --action produce --queue orders",
    "tarry key create workers --action consume --queue 'orders-*' --expires 90d",
    "tarry key create ops --action all",
    "tarry key create tests --action all --expires 1h --quiet",
    audited=True,
)
def create(
    cli: CommandSession,
    name: Annotated[str, argument("NAME", "The owner of the key, for people.")],
    action: Annotated[list[str], option("--action ACTION", "read, produce, consume, admin or all; may be repeated.")],
    queue: Annotated[list[str] | None, option("--queue NAME", "A queue, or a prefix and *; default: all.")] = None,
    expires: Annotated[str | None, option("--expires DURATION", "After this long; default: never.")] = None,
) -> None:
    """Create an API key, and print it.

    It is printed only once, with --quiet alone: only its hash is stored. Clients send it as Authorization: Bearer KEY. The
    first key disables anonymous access: running brokers refuse requests without a key within two seconds.
    """
    given = [one_of(text, [*Action, _ALL], "--action") for text in action]
    actions = list(Action) if _ALL in given else [Action(text) for text in given]
    expires_for = parsed(delay, expires, "--expires")
    with cli.open() as app:
        is_first = not app.keys.list()
        issued = app.keys.create(name, actions, queue or ["*"], expires_for=expires_for)
        cli.audited_after["created_key"] = issued.key.id
    if cli.quiet and cli.printer.for_people:
        cli.printer.lines([issued.text])
        return
    fields = [(column.title, column.value(issued.key)) for column in _KEYS.columns]
    cli.printer.record("tarry.key/1", {**data_of(issued.key), "key": issued.text}, [*fields, ("key", issued.text)])
    cli.note("store it now: it cannot be shown again")
    if is_first:
        cli.note("it is the first key: running brokers refuse requests without a key within two seconds")


@command("key list", "tarry key list", "tarry key list -o jsonl | jq -r .id")
def list_keys(cli: CommandSession) -> None:
    """List API keys, including revoked and expired ones.

    The keys themselves are not stored and cannot be shown.
    """
    with cli.open() as app:
        keys = app.keys.list()
    empty = "there are no keys: the broker accepts requests of this machine only; add one: tarry key create"
    cli.listing(_KEYS, keys, empty=empty)


@command("key revoke", "tarry key revoke 0a1b2c3d4e5f", audited=True)
def revoke(cli: CommandSession, id: Annotated[str, argument("ID", "See: tarry key list.")]) -> None:
    """Revoke an API key.

    Brokers refuse it within two seconds. Revoking a revoked key changes nothing.
    """
    with cli.open() as app:
        key = app.keys.revoke(id) if id.isalnum() else None
    if key is None:
        raise NotFound(f"there is no key {id!r:.80}", hint="see: tarry key list")
    cli.printer.view(_KEYS, key)


@command(
    "audit",
    "tarry audit",
    "tarry audit --actor 0a1b2c3d4e5f --limit 20",
    "tarry audit --action 'queue delete' -o jsonl",
)
def audit(
    cli: CommandSession,
    actor: Annotated[str | None, option("--actor TEXT", "Only if the actor contains this.")] = None,
    action: Annotated[str | None, option("--action TEXT", "Only if the action contains this.")] = None,
    before: Annotated[int | None, option("--before ID", "Only rows before this one.", min=1)] = None,
    limit: Limit = 100,
) -> None:
    """List administrative actions and refused requests.

    Newest first, from the broker, the dashboard and the command line. The status is an HTTP status; a row without one got no
    response.
    """
    with cli.open() as app:
        rows = app.store.run(app.store.security.audits(limit=limit, before=before, actor=actor, action=action))
    cli.listing(_AUDIT, rows, empty="no row matches", limit=limit)
