"""Settings: frozen, valid at birth, with named presets."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.core.errors import InvalidInput
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings, RetrySettings, StoreSettings

ZERO, SECOND = timedelta(0), timedelta(seconds=1)


def test_the_defaults_of_a_queue_are_those_of_the_promise() -> None:
    settings = QueueSettings()
    assert (settings.lease_for, settings.max_attempts) == (30 * SECOND, None)
    assert settings.journal is JournalLevel.EVENTS
    assert settings.retry == Retry(initial_for=SECOND, factor=2.0, cap_for=timedelta(minutes=10), jitter=0.1)
    assert QueueSettings.for_relay() == QueueSettings(max_attempts=3)


@pytest.mark.parametrize(
    "settings", [QueueSettings(), RetrySettings(), StoreSettings(), Retry()], ids=lambda s: type(s).__name__
)
def test_settings_are_frozen_and_compare_by_value(settings: Any) -> None:
    name = dataclasses.fields(settings)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(settings, name, getattr(settings, name))
    assert settings == type(settings)()
    assert hash(settings) == hash(type(settings)())


def test_a_duration_that_is_not_positive_is_shown_in_seconds() -> None:
    with pytest.raises(InvalidInput, match=r"^lock_for must be positive, got -1\.5 s$"):
        StoreSettings(lock_for=-1.5 * SECOND)
    with pytest.raises(InvalidInput, match=r"^pool_size must be positive, got 0$"):
        StoreSettings(pool_size=0)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (QueueSettings, {"lease_for": SECOND / 2}),
        (QueueSettings, {"lease_for": timedelta(hours=13)}),
        (QueueSettings, {"max_attempts": 0}),
        (QueueSettings, {"retry": Retry(max_attempts=3)}),
        (QueueSettings, {"retention_for": -SECOND}),
        (QueueSettings, {"target_lag_for": timedelta(days=5000)}),
        (RetrySettings, {"retries": -1}),
        (RetrySettings, {"initial_for": -SECOND}),
        (RetrySettings, {"total_for": -SECOND}),
        (StoreSettings, {"pool_size": 0}),
        (StoreSettings, {"payload_limit": 0}),
        (StoreSettings, {"scan_every": ZERO}),
        (StoreSettings, {"listening_scan_every": ZERO}),
        (StoreSettings, {"connect_for": -SECOND}),
        (StoreSettings, {"lock_for": ZERO}),
    ],
    ids=lambda case: case.__name__ if isinstance(case, type) else repr(case),
)
def test_settings_are_valid_at_birth(kind: type[Any], bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        kind(**bad)


def test_retries_double_their_pauses_up_to_a_cap() -> None:
    connection_retry = RetrySettings(initial_for=SECOND, cap_for=5 * SECOND)
    assert [connection_retry.pause(failures) / SECOND for failures in range(6)] == [1, 1, 2, 4, 5, 5]
    assert connection_retry.pause(10**9) == 5 * SECOND
    assert RetrySettings.none().retries == 0


def test_a_queue_is_paused_while_it_has_a_time_of_pausing() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    info = QueueInfo(name="q", settings=QueueSettings(), created_at=at, updated_at=at)
    assert (info.paused, dataclasses.replace(info, paused_at=at).paused) == (False, True)
