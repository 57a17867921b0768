"""The reference pages name everything that there is: a verb, parameter, setting or event that is added is documented too."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from runpy import run_path
from typing import Any

import psycopg
import pytest

import tarry
from tarry.api._sync.dead_letters import DeadLetters
from tarry.api._sync.queues import Queues
from tarry.api._sync.schedules import Schedules
from tarry.core import errors, limits
from tarry.core.journal.events import EventKind, JournalLevel
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.services.cron._sync.api import Cron
from tests.docs.pages import DOCS

REFERENCE = DOCS / "reference"
HANDLES = (tarry.App, tarry.Queue, tarry.Delivery, Queues, DeadLetters, Schedules, Cron)
UNDOCUMENTED = {"self", "conn", "store", "on_close"}  # `conn` is documented once for all


PAGES: dict[str, Callable[[], str]] = run_path(str(DOCS.parent / "tools/reference-pages"))["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    assert (REFERENCE / page).read_text(encoding="utf-8") == PAGES[page](), "run: tools/reference-pages"


def words(page: str) -> set[str]:
    return set(re.findall(r"\w+", (REFERENCE / page).read_text(encoding="utf-8")))


def verbs(handle: type) -> dict[str, Any]:
    return {name: getattr(handle, name) for name in dir(handle) if not name.startswith("_")}


def names_of(handle: type) -> set[str]:
    names = set(verbs(handle))
    for verb in verbs(handle).values():
        if inspect.isfunction(verb):
            names |= set(inspect.signature(verb).parameters)
    return names - UNDOCUMENTED


def test_every_export_is_on_the_page_of_the_api() -> None:
    assert set(tarry.__all__) - words("python-api.md") == set()


@pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle.__name__)
def test_every_verb_and_parameter_is_on_the_page_of_the_api(handle: type) -> None:
    assert names_of(handle) - words("python-api.md") == set()


def test_connecting_is_documented_in_full() -> None:
    parameters = set(inspect.signature(tarry.connect).parameters)
    assert parameters - words("python-api.md") == set()
    assert set(inspect.signature(tarry.connect_async.__init__).parameters) - {"self"} == parameters


def test_every_outcome_is_on_the_page_of_the_api() -> None:
    assert {member.name for outcomes in (Outcome, Settled) for member in outcomes} - words("python-api.md") == set()


@pytest.mark.parametrize(
    "settings", [BrokerSettings, QueueSettings, StoreSettings, RetrySettings, Retry], ids=lambda kind: kind.__name__
)
def test_every_setting_is_on_its_page(settings: Any) -> None:
    assert {field.name for field in dataclasses.fields(settings)} - words("settings-and-limits.md") == set()


def test_the_limits_are_those_of_the_code() -> None:
    page = (REFERENCE / "settings-and-limits.md").read_text(encoding="utf-8")
    shown = {
        f"1 to {limits.KEY_LENGTH} characters",
        f"1 to {limits.TYPE_LENGTH} characters",
        f"{limits.PRIORITIES[0]} to {limits.PRIORITIES[-1]}",
        f"{limits.PAYLOAD_BYTES // 1024} KiB",
        f"{limits.HEADER_BYTES // 1024} KiB",
        f"at most {limits.JSON_DEPTH} deep",
        f"1 to {limits.MAX_ATTEMPTS:,}",
        f"{limits.ERROR_LENGTH:,} characters",
        f"{limits.SHORTEST_LEASE.seconds} s to {limits.LONGEST_LEASE.seconds // 3600} h",
        f"{limits.LONGEST_DELAY.days // 365} years",
    }
    assert {text for text in shown if text not in page} == set()


def test_every_error_is_on_its_page() -> None:
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert kinds - words("errors.md") == set()


def test_every_kind_of_event_and_level_of_the_journal_is_on_its_page() -> None:
    assert {kind.value for kind in EventKind} - words("events.md") == set()
    assert {level.name for level in JournalLevel} - words("events.md") == set()


def test_the_columns_of_the_journal_are_on_its_page(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute(
        "select column_name from information_schema.columns where table_schema = 'tarry' and table_name = 'journal'"
    ).fetchall()
    assert rows
    assert {name for (name,) in rows} - words("events.md") == set()
