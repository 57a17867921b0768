"""The one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping


def dsn_from(environ: Mapping[str, str] = os.environ) -> str | None:
    """The database that the environment names: TARRY_DSN, else libpq's own variables (an empty DSN lets libpq read them).

    None: nothing is named, and the embedded database is meant.
    """
    if dsn := environ.get("TARRY_DSN"):
        return dsn
    return "" if any(environ.get(name) for name in ("PGHOST", "PGSERVICE", "PGDATABASE", "PGHOSTADDR")) else None
