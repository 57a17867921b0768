"""All environment variables that Tarry reads."""

import os
import re
from collections.abc import Mapping, MutableMapping
from urllib.parse import quote

from tarry.core.errors import InvalidInput

_REDIS = frozenset({"redis", "rediss", "redis+cluster", "rediss+cluster"})
_SCHEMA = re.compile(r"(?:(?<=[?&\s])|^)schema=([^&\s]*)")
_OPTIONS = re.compile(r"(?:(?<=[?&\s])|^)options\s*=")
_SCHEMA_NAME = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,39}")
WORKER_PARENT = "TARRY_WORKER_PARENT"
"""Descriptor of the pipe by which processes of `tarry worker` detect the exit of their parent."""


def worker_parent_from(environ: MutableMapping[str, str] = os.environ) -> int | None:
    """The descriptor, removed from the environment: programs started by a handler must not inherit it."""
    text = environ.pop(WORKER_PARENT, None)
    return None if text is None else int(text)


def release_from(environ: Mapping[str, str] = os.environ) -> str | None:
    """TARRY_RELEASE: the release of the user's program that a worker runs."""
    return environ.get("TARRY_RELEASE") or None


def libpq_dsn(dsn: str, schema: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The DSN without SQLAlchemy's driver (`postgresql+asyncpg://…`). The schema of `…?schema=tenant`, or `schema`, becomes a
    libpq option, so every program can use the address. That option replaces PGOPTIONS, and therefore includes it."""
    scheme, separator, rest = dsn.partition("://")
    if scheme in _REDIS:
        return dsn
    dsn = f"postgresql://{rest}" if separator and scheme.startswith("postgresql+") else dsn
    names = [*([] if schema is None else [schema]), *_SCHEMA.findall(dsn)]
    if not names:
        return dsn
    # Checked before it becomes part of the address: it could contain further keywords, such as another host.
    if len(names) > 1 or not _SCHEMA_NAME.fullmatch(names[0]) or _OPTIONS.search(dsn):
        raise InvalidInput(
            f"schema={names[0]!r:.60} cannot be used in this address",
            hint="one schema, up to 40 of a-z, 0-9 and _, not beginning with a digit or pg_; and the address has no options",
        )
    options = f"-ctarry.schema={names[0]} {environ.get('PGOPTIONS', '')}".rstrip()
    quoted = quote(options, safe="") if separator else "'" + re.sub(r"(['\\])", r"\\\1", options) + "'"
    option = f"options={quoted}"
    if schema is None:
        return _SCHEMA.sub(lambda _: option, dsn)
    return f"{dsn}{' ' if not separator else '&' if '?' in dsn else '?'}{option}"


def dsn_from(environ: Mapping[str, str] = os.environ) -> str | None:
    """The DSN in TARRY_DSN, or an empty DSN if libpq's variables are set. None: use the embedded database."""
    if dsn := environ.get("TARRY_DSN"):
        return libpq_dsn(dsn, environ=environ)
    return "" if any(environ.get(name) for name in ("PGHOST", "PGSERVICE", "PGDATABASE", "PGHOSTADDR")) else None


def redis_url_from(dsn: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The given or configured DSN if it is a Redis URL; None: it is a PostgreSQL DSN."""
    named = dsn_from(environ) if dsn is None else dsn
    if not isinstance(named, str) or named.partition("://")[0] not in _REDIS:
        return None
    if _SCHEMA.search(named):
        raise no_schema_on_redis()
    return named


def no_schema_on_redis() -> InvalidInput:
    return InvalidInput("a schema needs PostgreSQL, but this is a Redis address", hint="redis://host/1")


def listen_dsn_from(dsn: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """TARRY_LISTEN_DSN, the DSN for LISTEN, if `dsn` is the configured database."""
    listen_dsn = environ.get("TARRY_LISTEN_DSN")
    same = libpq_dsn(dsn, environ=environ) == dsn_from(environ)
    return libpq_dsn(listen_dsn, environ=environ) if listen_dsn and same else None


def broker_from(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """Broker address and key: TARRY_URL and TARRY_KEY, by default a local `tarry serve`."""
    return environ.get("TARRY_URL") or "http://127.0.0.1:8080", environ.get("TARRY_KEY") or None


def no_color_from(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to print without colours: NO_COLOR is set, or the terminal has none."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
