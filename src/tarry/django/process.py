"""The worker of the setting TARRY, for `tarry worker tarry.django.process:worker` and its child processes."""
# pyright: basic

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tarry.core.errors import InvalidInput
from tarry.services.worker.worker import Worker


def __getattr__(name: str) -> Worker:
    if name != "worker":
        raise AttributeError(name)
    import django
    from django.utils.module_loading import import_string

    from tarry.django import settings

    django.setup()
    target = settings().worker
    if target is None:
        raise InvalidInput("the setting TARRY names no worker", hint='TARRY = {"WORKER": "shop.tasks:worker"}')
    worker = import_string(target.replace(":", "."))
    if not isinstance(worker, Worker):
        raise InvalidInput(f"{target} is a {type(worker).__name__}, not a tarry.Worker")
    worker.middleware(fresh_connections)
    return worker


@contextmanager
def fresh_connections(delivery: Any) -> Iterator[None]:
    """Close broken and outdated connections, as Django does around a request."""
    from django.db import close_old_connections

    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
