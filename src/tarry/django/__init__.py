"""Tarry in a Django project: `INSTALLED_APPS = ["tarry.django"]`, `manage.py tarry …`, and an app on Django's database.

The setting TARRY is a dictionary with optional keys: DATABASE (an alias, by default "default"), QUEUES (names, or settings by
name, created by `manage.py migrate`), WORKER ("shop.tasks:worker", for `manage.py tarry worker`), DASHBOARD (the address of
the admin's link).
"""
# pyright: basic

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tarry.app import App, connect
from tarry.core.errors import InvalidInput
from tarry.core.extras import needs_extra
from tarry.core.settings import QueueSettings

with needs_extra("django", "tarry.django"):
    from django import conf
    from django.db import connections

__all__ = ["app", "close", "dsn", "settings"]

_apps: dict[str, App] = {}
"""Apps by address: tests have their own database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoSettings:
    database: str = "default"
    queues: Mapping[str, QueueSettings] | Iterable[str] = ()
    worker: str | None = None
    dashboard: str | None = None

    @property
    def queue_settings(self) -> dict[str, QueueSettings]:
        queues = self.queues
        return dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, QueueSettings())


def settings() -> DjangoSettings:
    """The setting TARRY."""
    given: Mapping[str, Any] = getattr(conf.settings, "TARRY", {})
    known = {field.name.upper(): field.name for field in fields(DjangoSettings)}
    if unknown := sorted(given.keys() - known.keys()):
        raise InvalidInput(f"TARRY has no {', '.join(unknown)}", hint=f"there are {', '.join(sorted(known))}")
    return DjangoSettings(**{known[name]: value for name, value in given.items()})


def dsn(alias: str | None = None) -> str:
    """The address of Django's database."""
    from psycopg.conninfo import make_conninfo

    database = connections[alias or settings().database]
    if database.vendor != "postgresql":
        raise InvalidInput(
            f"Tarry needs PostgreSQL, and {database.alias!r} is {database.vendor}", hint="TARRY DATABASE"
        )
    params = database.get_connection_params()
    ours = ("dbname", "user", "password", "host", "port", "service", "sslmode", "sslrootcert", "sslcert", "sslkey")
    return make_conninfo(**{name: params[name] for name in ours if params.get(name)})


def app() -> App:
    """The app of this process. Opened by the first call, so after the server has forked, and in tests on their database."""
    address = dsn()
    if address not in _apps:
        _apps[address] = connect(address)
    return _apps[address]


def close() -> None:
    """Close the apps of this process, so tests can drop their database."""
    while _apps:
        _apps.popitem()[1].close()
