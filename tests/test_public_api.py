"""What users import, and that blocking and awaiting code find the same things under the same names."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import typing
from typing import Any

import pytest

import tarry
from tarry.api._sync.dead_letters import DeadLetters
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.leases import Leases
from tarry.api._sync.queue import Queue
from tarry.api._sync.queues import Queues
from tarry.api._sync.redrives import Redrive, Redrives
from tarry.api._sync.schedules import Schedules
from tarry.api.dead_letters import AsyncDeadLetters
from tarry.api.delivery import AsyncDelivery
from tarry.api.leases import AsyncLeases
from tarry.api.queue import AsyncQueue
from tarry.api.queues import AsyncQueues
from tarry.api.redrives import AsyncRedrive, AsyncRedrives
from tarry.api.schedules import AsyncSchedules
from tarry.app import App, AsyncApp, connect, connect_async
from tarry.core import ports
from tarry.core._sync.ports import Store
from tarry.services.cron._sync.api import Cron
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.services.cron.api import AsyncCron
from tarry.services.cron.scheduler import AsyncScheduler
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore

TWINS = [
    (Queue, AsyncQueue),
    (Leases, AsyncLeases),
    (Delivery, AsyncDelivery),
    (Queues, AsyncQueues),
    (DeadLetters, AsyncDeadLetters),
    (Schedules, AsyncSchedules),
    (Cron, AsyncCron),
    (Scheduler, AsyncScheduler),
    (Redrives, AsyncRedrives),
    (Redrive, AsyncRedrive),
    (App, AsyncApp),
    (Store, ports.AsyncStore),
    (PostgresStore, AsyncPostgresStore),
    (MemoryStore, AsyncMemoryStore),
]
ONE_SIDED = {
    AsyncPostgresStore: {"open"},
    MemoryStore: {"events"},
    App: {"pipeline"},
    AsyncApp: {"blocking", "sweeper"},
}
"""A pool that awaits must be opened by code that awaits; the memory's
whole journal is for tests; the jobs of the pipeline block, and loops do not."""

by_name = pytest.mark.parametrize(("blocking", "awaiting"), TWINS, ids=lambda kind: kind.__name__)


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - ONE_SIDED.get(kind, set())


def parameters(kind: type[Any], name: str) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(getattr(kind, name))
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def methods(kind: type[Any]) -> list[str]:
    return sorted(name for name in public(kind) if inspect.isfunction(inspect.getattr_static(kind, name)))


def test_all_is_sorted_short_and_true() -> None:
    assert tarry.__all__ == sorted(tarry.__all__)
    assert len(tarry.__all__) <= 24
    assert all(getattr(tarry, name) is not None for name in tarry.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        _ = tarry.Broker  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", tarry.__all__)
def test_every_name_is_the_one_that_its_module_has(name: str) -> None:
    value = getattr(tarry, name)
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_importing_tarry_loads_no_driver() -> None:
    program = "import sys, tarry; sys.exit('psycopg' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@by_name
def test_twins_have_the_same_public_names(blocking: type[Any], awaiting: type[Any]) -> None:
    assert public(blocking) == public(awaiting)


@by_name
def test_twins_have_the_same_parameters(blocking: type[Any], awaiting: type[Any]) -> None:
    assert methods(blocking) == methods(awaiting)
    for name in methods(blocking):
        assert parameters(blocking, name) == parameters(awaiting, name), name


@by_name
def test_only_one_of_the_twins_awaits(blocking: type[Any], awaiting: type[Any]) -> None:
    for name in set(methods(blocking)) - {"queue", "cron"}:
        theirs = inspect.getattr_static(awaiting, name)
        assert not inspect.iscoroutinefunction(inspect.getattr_static(blocking, name)), name
        assert inspect.iscoroutinefunction(theirs) or inspect.isasyncgenfunction(theirs), name


def test_a_connection_that_was_not_awaited_explains_itself() -> None:
    with pytest.raises(AttributeError, match=r"connect_async\(\) was not awaited.*async with"):
        connect_async().queue("orders")  # pyright: ignore[reportAttributeAccessIssue]


def test_connect_and_connect_async_take_the_same() -> None:
    assert parameters_of(connect) == parameters_of(connect_async)


def parameters_of(call: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize(
    ("port", "store"),
    [
        (Store, PostgresStore),
        (Store, MemoryStore),
        (ports.AsyncStore, AsyncPostgresStore),
        (ports.AsyncStore, AsyncMemoryStore),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_store_has_every_verb_of_its_port_with_the_same_parameters(port: type[Any], store: type[Any]) -> None:
    assert set(methods(port)) <= set(methods(store))
    for name in methods(port):
        assert parameters(port, name) == parameters(store, name), name


@pytest.mark.parametrize(
    "name",
    [
        "messages",
        "queues",
        "wakeup",
        "dead_letters",
        "cron",
        "journal",
        "security",
        "maintenance",
        "rollups",
        "search",
    ],
)
def test_a_role_has_every_method_of_its_port_with_the_same_parameters(name: str) -> None:
    port = typing.get_type_hints(getattr(ports.Roles, name).fget)["return"]
    postgres = importlib.import_module(f"tarry.storage.postgres.{name}.role")
    of_postgres = getattr(postgres, "Postgres" + port.__name__.removesuffix("Role"))
    of_memory = type(getattr(MemoryStore(), name))
    for role in (of_postgres, of_memory):
        assert set(methods(port)) <= set(methods(role))
        for method in methods(port):
            assert parameters(port, method) == parameters(role, method), method


@pytest.mark.parametrize(
    "kind",
    [
        Queue,
        AsyncQueue,
        Leases,
        AsyncLeases,
        DeadLetters,
        AsyncDeadLetters,
        Redrives,
        AsyncRedrives,
        Redrive,
        AsyncRedrive,
        Queues,
        AsyncQueues,
        Delivery,
        AsyncDelivery,
    ],
)
def test_every_verb_but_those_that_wait_takes_the_callers_connection(kind: type[Any]) -> None:
    waiting = {"poll", "poll_many", "consume"}
    without = {name for name in methods(kind) if "conn" not in inspect.signature(getattr(kind, name)).parameters}
    assert without <= waiting
