"""Bugs for the tester to find: our own SQL with one condition taken out, as others have shipped it."""

from __future__ import annotations

from typing import Any

from tarry.storage.postgres import statement, statements

_STATEMENT_NOW = "coalesce(%(now)s::timestamptz, statement_timestamp())"
_CLOCK_NOW = "coalesce(%(now)s::timestamptz, clock_timestamp())"
_FENCE = " and m.token = h.token"

# What is taken out of which statement, and what is put there instead.
BUGS: dict[str, dict[str, list[tuple[str, str]]]] = {
    # pgmq, graphile-worker, Oban: whoever knows the message may finish it.
    "ack by key": {"ack": [(_FENCE, "")]},
    # An offer replaces the message, and the old lease settles the new one.
    "token kept on re-offer": {"offer": [("token = null, ", "")]},
    "lease that ignores leases": {"lease": [(f" and c.lease_until <= {_STATEMENT_NOW}", "")]},
    "touch after expiry": {"touch": [(f" and m.lease_until > {_CLOCK_NOW}", "")]},
    "lease that ignores the time": {"lease": [(f" and c.due_at <= {_STATEMENT_NOW}", "")]},
    # An ack that marks nothing: the message comes back when its lease runs out.
    "ack that removes nothing": {
        "ack": [("delete from tarry.message m using held h", "update tarry.message m set consumer = null from held h")]
    },
    # A lease that does not count, so that a failing message never dies.
    "attempts that do not count": {"lease": [("attempt = attempt + 1,", "attempt = 1,")]},
    # Accepted, and in the memory of the server only: needs a crash to be found.
    "offer that does not wait for the disk": {
        "offer": [
            (
                "from tarry.queue where name = %(queue)s and deleted_at is null ), numbered",
                "from (select set_config('synchronous_commit', 'off', true)) o, tarry.queue "
                "where name = %(queue)s and deleted_at is null ), numbered",
            )
        ]
    },
}


def plant(bug: str) -> None:
    """From now on, this process runs the modified statements."""
    changes = BUGS[bug]

    def sql(verb: Any) -> Any:
        text = statement.sql(verb)
        for old, new in changes.get(verb, []):
            assert old in text, f"{verb}.sql changed, and the bug cannot be planted: {old!r} is not in it"
            text = text.replace(old, new)
        return text

    statements.sql = sql  # pyright: ignore[reportAttributeAccessIssue]
