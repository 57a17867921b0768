"""`AnalyticsRole` on PostgreSQL: each method makes the operation of its name."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from tarry.core.analytics.port import AnalyticsRole
from tarry.storage.postgres.analytics import operations
from tarry.storage.postgres.journal import recent
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.statement import Op


def analytics_role() -> AnalyticsRole:
    def method(make: Callable[..., Op[Any]], *, atomic: bool = False) -> Callable[..., PostgresOperation[Any]]:
        return lambda *args, **options: PostgresOperation(lambda own: make(*args, **options), atomic)

    methods = {name: method(getattr(operations, name)) for name in operations.OF_THE_PORT}
    events, mute = method(recent.look_back, atomic=True), method(operations.mute, atomic=True)
    return cast("AnalyticsRole", SimpleNamespace(**methods, events=events, mute=mute))
