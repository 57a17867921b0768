"""Schedules that cannot be: refused by the name of what is wrong, and nothing is installed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.services.cron._sync.api import Cron
from tests.kit.steps import HOUR, SECOND


@pytest.fixture(autouse=True)
def nothing_is_installed(cron: Cron) -> Any:
    yield
    assert cron.schedules.list() == []


def test_a_field_of_the_expression_that_cannot_be(cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="minute field"):
        cron.install_cron("p", "61 * * * *", zone="UTC", queue="q")


def test_a_time_zone_that_does_not_exist_with_one_that_does(cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="no time zone 'Europe/Berln'") as error:
        cron.install_cron("p", "0 2 * * *", zone="Europe/Berln", queue="q")
    assert error.value.hint is not None
    assert "Europe/Berlin" in error.value.hint


def test_a_day_without_an_hour(cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="at least one hour"):
        cron.install_daily("p", [], zone="UTC", queue="q")


def test_an_interval_that_is_not_positive(app: App, cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="every"):
        cron.install_periodic("p", timedelta(0), queue="q")
    for every in (0 * SECOND, -SECOND):
        with app.cron() as planning, pytest.raises(InvalidInput, match="every"):
            planning.install("h1", "p", every, lambda now: [], queue="q")


def test_a_misfire_policy_that_does_not_exist(cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="misfire must be one of skip, once, all"):
        cron.install_periodic("p", HOUR, queue="q", misfire="never")  # pyright: ignore[reportArgumentType]


def test_what_may_be_skipped_cannot_be_planned_ahead(cron: Cron) -> None:
    with pytest.raises(InvalidInput, match="in advance"):
        cron.install_periodic("p", HOUR, queue="q", overlap="skip", in_advance_for=HOUR)


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00b", 7])
def test_a_name_that_cannot_be(cron: Cron, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="name of a schedule"):
        cron.install_periodic(bad, HOUR, queue="q")
    with pytest.raises(InvalidInput, match="name of a schedule"):
        cron.install_tick("h1", bad, [], queue="q")


@pytest.mark.parametrize("config_hash", ["", "a/b", "x" * 65, "ü"])
def test_a_hash_that_cannot_be(cron: Cron, config_hash: str) -> None:
    with pytest.raises(InvalidInput, match="config hash"):
        cron.install_tick(config_hash, "p", [], queue="q")
