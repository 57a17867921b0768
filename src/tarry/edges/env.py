"""The one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from tarry.core.errors import InvalidInput

WORKER_PARENT = "TARRY_WORKER_PARENT"
"""Between the processes of `tarry worker`: the pipe that ends with the one that started the others."""


def worker_parent_from(environ: MutableMapping[str, str] = os.environ) -> int | None:
    """Taken out, since it is not for the programs that a handler starts."""
    text = environ.pop(WORKER_PARENT, None)
    return None if text is None else int(text)


def dsn_from(environ: Mapping[str, str] = os.environ) -> str | None:
    """The database that the environment names: TARRY_DSN, else libpq's own variables (an empty DSN lets libpq read them).

    None: nothing is named, and the embedded database is meant.
    """
    if dsn := environ.get("TARRY_DSN"):
        return dsn
    return "" if any(environ.get(name) for name in ("PGHOST", "PGSERVICE", "PGDATABASE", "PGHOSTADDR")) else None


def listen_dsn_from(dsn: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where to listen for what happens there: TARRY_LISTEN_DSN, which goes with the database that the environment names."""
    return environ.get("TARRY_LISTEN_DSN") or None if dsn == dsn_from(environ) else None


def broker_from(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """The address of a broker and the key for it: TARRY_URL and TARRY_KEY, else the one that `tarry serve` starts here."""
    return environ.get("TARRY_URL") or "http://127.0.0.1:8080", environ.get("TARRY_KEY") or None


def no_color_from(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the user wants no colours: NO_COLOR with any text in it, or a terminal that has none."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"


def demo_seconds_from(environ: Mapping[str, str] = os.environ) -> float | None:
    """How long the demo runs, if DEMO_SECONDS says so. None: until it is stopped."""
    text = environ.get("DEMO_SECONDS")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"DEMO_SECONDS must be a number of seconds, not {text!r:.80}") from None
