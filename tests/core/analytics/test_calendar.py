"""Hours of the week by local clocks."""

from __future__ import annotations

from datetime import date

import pytest

from tarry.core.analytics.calendar import Calendar
from tarry.core.errors import InvalidInput

TUESDAY = 24


def test_a_date_has_the_hours_of_its_clocks_also_when_they_change() -> None:
    assert dict(Calendar().hours(date(2026, 11, 17))) == {hour: TUESDAY + hour for hour in range(24)}
    winter, summer = (dict(Calendar("Europe/Berlin").hours(day)) for day in (date(2026, 10, 27), date(2026, 10, 20)))
    assert (winter[8], summer[7]) == (TUESDAY + 9, TUESDAY + 9)
    assert len(list(Calendar("Asia/Kolkata").hours(date(2026, 11, 17)))) == 48


def test_a_holiday_has_the_hours_of_a_sunday() -> None:
    calendar = Calendar("Europe/Berlin", frozenset({date(2026, 12, 25)}))
    hours = dict(calendar.hours(date(2026, 12, 25)))
    assert (hours[0], hours[22], hours[23]) == (6 * 24 + 1, 6 * 24 + 23, 5 * 24)


def test_an_unknown_zone_is_refused() -> None:
    for zone in ("Europe/Atlantis", "Europe"):
        with pytest.raises(InvalidInput, match="there is no time zone"):
            Calendar(zone)
    for text in ("../etc", "", "z" * 30_000, "a\0"):
        with pytest.raises(InvalidInput, match="a zone is an IANA name such as Europe/Berlin"):
            Calendar(text)
