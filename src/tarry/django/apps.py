"""Creates Tarry's tables and queues with `manage.py migrate`, and checks them with `manage.py check --database default`."""
# pyright: basic

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate

from tarry.app import connect
from tarry.core.errors import TarryError


class TarryConfig(AppConfig):
    name = "tarry.django"
    label = "tarry"
    verbose_name = "Tarry"

    def ready(self) -> None:
        post_migrate.connect(prepare, sender=self)
        checks.register(check_database, checks.Tags.database)


def prepare(*, using: str, **_: Any) -> None:
    from tarry.django import dsn, settings

    chosen = settings()
    if using != chosen.database:
        return
    with connect(dsn(using), migrate=True) as app:
        for name, of_queue in chosen.queue_settings.items():
            app.queues.create(name, of_queue, exist_ok=True)


def check_database(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    from tarry.django import dsn, settings

    if settings().database not in (databases or ()):
        return []
    try:
        connect(dsn()).close()
    except TarryError as error:
        return [checks.Error(error.message, hint=error.hint, id="tarry.E001")]
    return []
