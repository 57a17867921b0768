"""All environment variables that Tarry reads."""

import os
from collections.abc import Mapping, MutableMapping

_SQLALCHEMY = frozenset({"postgresql+psycopg", "postgresql+psycopg_async"})
_REDIS = frozenset({"redis", "rediss", "redis+cluster", "rediss+cluster"})
WORKER_PARENT = "TARRY_WORKER_PARENT"
"""Descriptor of the pipe by which the processes of `tarry worker` notice that their parent has ended."""


def worker_parent_from(environ: MutableMapping[str, str] = os.environ) -> int | None:
    """The descriptor, removed from the environment: programs that a handler starts must not inherit it."""
    text = environ.pop(WORKER_PARENT, None)
    return None if text is None else int(text)


def libpq_dsn(dsn: str) -> str:
    """Without the driver that addresses of SQLAlchemy name: `postgresql+psycopg://…`."""
    scheme, separator, rest = dsn.partition("://")
    return f"postgresql://{rest}" if separator and scheme in _SQLALCHEMY else dsn


def dsn_from(environ: Mapping[str, str] = os.environ) -> str | None:
    """The DSN in TARRY_DSN, otherwise an empty DSN if libpq's own variables are set. None: use the embedded database."""
    if dsn := environ.get("TARRY_DSN"):
        return libpq_dsn(dsn)
    return "" if any(environ.get(name) for name in ("PGHOST", "PGSERVICE", "PGDATABASE", "PGHOSTADDR")) else None


def redis_url_from(dsn: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The DSN, or that of the environment, if it is one of Redis; None: it is one of PostgreSQL."""
    named = dsn_from(environ) if dsn is None else dsn
    return named if isinstance(named, str) and named.partition("://")[0] in _REDIS else None


def listen_dsn_from(dsn: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """TARRY_LISTEN_DSN, the DSN for LISTEN, if `dsn` is the database of the environment."""
    return environ.get("TARRY_LISTEN_DSN") or None if dsn == dsn_from(environ) else None


def broker_from(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Address and key of a broker: TARRY_URL and TARRY_KEY, by default the broker that `tarry serve` starts here."""
    return environ.get("TARRY_URL") or "http://127.0.0.1:8080", environ.get("TARRY_KEY") or None


def no_color_from(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to print without colours: NO_COLOR is not empty, or the terminal has none."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
