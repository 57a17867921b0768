"""Schedules as values: golden hashes, alignment, what may be written, what may not. DelayedQueue's daily cases among them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, time, timedelta
from itertools import takewhile

import pytest

from tarry.core.cron.model import CronMessage, Policy, jitter, tick_key
from tarry.core.cron.schedule_types import BEGIN, Cron, Daily, Periodic, Ticks, Timetable, schedule_of, stored_schedule
from tarry.core.cron.timezones import comes, instant, zone_of
from tarry.core.errors import InvalidInput

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def at(hour: int, minute: int = 0, day: int = 1) -> datetime:
    return datetime(2024, 1, day, hour, minute, tzinfo=UTC)


def wall(*parts: int) -> datetime:
    """What a clock on a wall shows."""
    return datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # pyright: ignore[reportArgumentType]


def coming(daily: Daily, now: datetime, horizon: timedelta) -> list[datetime]:
    """The ticks within the horizon, and at least the next one, however far it is."""
    ticks = Timetable(daily).after(now)
    return [next(ticks), *takewhile(lambda tick: tick <= now + horizon, ticks)]


class TestHashes:
    def test_the_golden_values_of_the_originals(self) -> None:
        assert Periodic(HOUR).config_hash == "4916474562628112070d240d515ba44d"
        assert Daily(["12:00", "18:00"], "UTC").config_hash == "ac4a97d66f972bdaad77be2731bb7c2a"

    def test_equal_schedules_have_equal_hashes_and_others_have_not(self) -> None:
        assert Periodic(HOUR).config_hash == Periodic(60 * timedelta(minutes=1)).config_hash
        assert Periodic(HOUR).config_hash != Periodic(2 * HOUR).config_hash
        assert Daily(["18:00", "12:00"], "UTC").config_hash == Daily(["12:00", "18:00"], "UTC").config_hash
        assert Daily(["12:00"], "UTC").config_hash != Daily(["12:00"], "Europe/Berlin").config_hash
        assert Daily(["12:00"], "UTC").config_hash != Daily(["13:00"], "UTC").config_hash
        assert Cron("@daily", "UTC").config_hash == Cron("0 0 * * *", "UTC").config_hash
        assert Cron("0 0 * * mon", "UTC").config_hash == Cron(" 0 0  * * MON", "UTC").config_hash

    @pytest.mark.parametrize(
        "schedule",
        [Periodic(1.5 * HOUR), Daily(["02:00", "14:30:15"], "Europe/Berlin"), Cron("0 18 L * *", "UTC"), Ticks("abc")],
        ids=lambda schedule: schedule.kind,
    )
    def test_what_is_stored_is_read_back(self, schedule: Periodic | Daily | Cron | Ticks) -> None:
        assert schedule_of(schedule.kind, schedule.text, schedule.zone) == schedule

    def test_what_cannot_be_read_here_does_not_stop_the_rest(self) -> None:
        schedule = stored_schedule("cron", "0 0 * * *", "Mars/Olympus", "h")
        assert (schedule.kind, schedule.config_hash, schedule.next_after(NOON)) == ("cron", "h", None)


class TestKeys:
    def test_a_key_is_the_same_for_the_same_tick_and_begins_with_the_prefix(self) -> None:
        assert tick_key("p", "h", NOON) == tick_key("p", "h", NOON) == "p/h/20240101-120000.000000000"

    def test_instants_within_one_second_have_keys_of_their_own(self) -> None:
        first, second = (NOON + timedelta(milliseconds=ms) for ms in (100, 900))
        assert tick_key("p", "h", first) != tick_key("p", "h", second)

    def test_a_message_carries_payload_and_times(self) -> None:
        message = CronMessage({"a": 1}, NOON, NOON + HOUR)
        assert (message.payload, message.at, message.due_at) == ({"a": 1}, NOON, NOON + HOUR)


class TestPeriodic:
    def test_aligned_to_the_epoch(self) -> None:
        assert Periodic(HOUR).next_after(at(10, 37)) == at(11)
        assert Periodic(HOUR).next_after(at(11)) == at(12)
        assert Periodic(DAY).next_after(NOON) == at(0, day=2)

    @pytest.mark.parametrize("seconds", [2, 4])
    def test_short_periods_miss_nothing(self, seconds: int) -> None:
        every = timedelta(seconds=seconds)
        ticks = Timetable(Periodic(every)).between(NOON, NOON + timedelta(minutes=1), 100)
        assert ticks == [NOON + n * every for n in range(1, 60 // seconds + 1)]

    @pytest.mark.parametrize(
        "every", [timedelta(0), -HOUR, timedelta(milliseconds=999), timedelta(seconds=1, microseconds=7)]
    )
    def test_no_period_a_short_one_and_a_crooked_one_are_refused(self, every: timedelta) -> None:
        with pytest.raises(InvalidInput, match="every"):
            Periodic(every)


class TestDaily:
    hours = Daily(["12:00", "18:00"], "UTC")

    def test_no_hours_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="at least one hour"):
            Daily([], "UTC")

    @pytest.mark.parametrize("bad", ["noon", "25:00", "12:00+02:00", time(1, tzinfo=UTC), time(1, 0, 0, 5), 12])
    def test_hours_that_are_none_are_refused(self, bad: str) -> None:
        with pytest.raises(InvalidInput, match="hour"):
            Daily([bad], "UTC")

    def test_a_negative_horizon_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="in_advance_for"):
            Policy(in_advance_for=-HOUR)

    def test_the_next_one(self) -> None:
        assert coming(self.hours, at(10), timedelta(0)) == [at(12)]

    def test_at_least_one_also_beyond_the_horizon(self) -> None:
        assert coming(self.hours, at(19), HOUR) == [at(12, day=2)]

    def test_a_horizon_of_two_days_has_both_days(self) -> None:
        assert coming(self.hours, at(10), 2 * DAY) == [at(12), at(18), at(12, day=2), at(18, day=2)]

    def test_the_very_instant_is_over(self) -> None:
        assert coming(self.hours, at(12), 8 * HOUR) == [at(18)]

    def test_after_the_last_hour_come_those_of_the_next_day(self) -> None:
        assert coming(self.hours, at(20), DAY) == [at(12, day=2), at(18, day=2)]

    def test_three_hours_a_day_across_midnight(self) -> None:
        three = Daily(["06:00", "14:00", "22:00"], "UTC")
        assert coming(three, at(15), DAY) == [at(22), at(6, day=2), at(14, day=2)]

    def test_hours_in_any_order_are_sorted(self) -> None:
        assert Daily(["18:00", "06:00", "12:00"], "UTC").text == "06:00, 12:00, 18:00"


class TestCron:
    @pytest.mark.parametrize(
        ("expression", "zone", "expected"),
        [
            ("0 18 L * *", "America/New_York", "2024-01-31T23:00:00+00:00"),
            ("0 18 LW 3 *", "UTC", "2024-03-29T18:00:00+00:00"),
            ("0 9 * * 1#2", "UTC", "2024-01-08T09:00:00+00:00"),
            ("0 9 * * 5L", "UTC", "2024-01-26T09:00:00+00:00"),
            ("15 30 9 * * *", "UTC", "2024-01-02T09:30:15+00:00"),
            ("@hourly", "UTC", "2024-01-01T13:00:00+00:00"),
            ("@weekly", "UTC", "2024-01-07T00:00:00+00:00"),
            ("@monthly", "UTC", "2024-02-01T00:00:00+00:00"),
            ("@yearly", "Asia/Kolkata", "2024-12-31T18:30:00+00:00"),
            ("0 0 29 2 *", "UTC", "2024-02-29T00:00:00+00:00"),
            ("*/10 * * * * *", "UTC", "2024-01-01T12:00:10+00:00"),
        ],
    )
    def test_the_next_tick(self, expression: str, zone: str, expected: str) -> None:
        tick = Cron(expression, zone).next_after(NOON)
        assert tick is not None
        assert tick.isoformat() == expected

    @pytest.mark.parametrize(
        ("expression", "problem"),
        [
            ("60 * * * *", "minute field"),
            ("* 24 * * *", "hour field"),
            ("* * 0 * *", "day-of-month field"),
            ("* * * 13 *", "month field"),
            ("* * * * 8", "day-of-week field"),
            ("61 0 0 * * *", "second field"),
            ("* * * *", "4 fields"),
            ("", "five or six"),
            ("@reboot", "no alias"),
            ("@every 5m", "no alias"),
            ("0 0 31 2 *", "day-of-month field"),
            ("0 0 1--100000000 * *", "day-of-month field"),
            ("*/0 * * * *", "minute field"),
            ("0 0 * * " + "1," * 200, "at most 200"),
            ("* * */20 * 1L", "never fires"),
            ("a b c d e", "minute field"),
            ("٣ * * * *", "minute field"),
        ],
    )
    def test_what_is_wrong_is_named(self, expression: str, problem: str) -> None:
        with pytest.raises(InvalidInput, match=problem):
            Cron(expression, "UTC")

    def test_which_hours_are_named_decides_and_not_how_they_are_written(self) -> None:
        assert [Cron(f"0 {hours} * * *", "UTC").expression.names_hours for hours in ("*", "*/1", "0-23", "0-22", "*/2")] == [
            False, False, False, True, True,
        ]  # fmt: skip

    def test_six_fields_are_treated_like_five(self) -> None:
        zone, since = "America/New_York", datetime(2026, 11, 1, tzinfo=UTC)
        five, six = Cron("30 1 * * *", zone), Cron("0 30 1 * * *", zone)
        assert Timetable(five).between(since, since + 3 * DAY, 9) == Timetable(six).between(since, since + 3 * DAY, 9)


class TestWallClocks:
    def test_a_reading_that_never_comes_is_the_first_instant_after_the_gap(self) -> None:
        new_york = zone_of("America/New_York")
        for minute in (0, 1, 30, 59):
            reading = wall(2026, 3, 8, 2, minute)
            assert instant(new_york, reading) == datetime(2026, 3, 8, 7, tzinfo=UTC)
            assert comes(new_york, reading) == 0

    def test_a_reading_that_comes_twice_is_the_first_of_them(self) -> None:
        new_york = zone_of("America/New_York")
        assert instant(new_york, wall(2026, 11, 1, 1, 30)) == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
        assert [comes(new_york, wall(2026, 11, 1, hour)) for hour in (0, 1, 2)] == [1, 2, 1]

    def test_a_whole_day_that_is_left_out(self) -> None:
        # Samoa had no 30 December 2011: the tick of that date and that of the next midnight are one.
        apia = Timetable(Daily(["00:00", "12:00"], "Pacific/Apia"))
        ticks = apia.between(datetime(2011, 12, 29, 12, tzinfo=UTC), datetime(2011, 12, 31, 12, tzinfo=UTC), 9)
        assert [tick.isoformat() for tick in ticks] == [
            "2011-12-29T22:00:00+00:00", "2011-12-30T10:00:00+00:00", "2011-12-30T22:00:00+00:00",
            "2011-12-31T10:00:00+00:00",
        ]  # fmt: skip

    def test_two_hours_in_one_gap_are_one_tick(self) -> None:
        daily = Timetable(Daily(["02:30", "03:00"], "America/New_York"))
        since = datetime(2026, 3, 8, 5, tzinfo=UTC)
        assert daily.between(since, since + 12 * HOUR, 9) == [datetime(2026, 3, 8, 7, tzinfo=UTC)]

    @pytest.mark.parametrize(
        "name", ["", "Europe", "../etc/passwd", "localtime", "posix/UTC", "CET CEST", "Mars/Olympus"]
    )
    def test_what_is_not_a_zone_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="zone"):
            zone_of(name)


class TestTimetables:
    @pytest.mark.parametrize(
        "schedule",
        [
            Periodic(timedelta(seconds=7)),
            Periodic(timedelta(seconds=15)),
            Cron("*/20 * * * * *", "Europe/Berlin"),
            Cron("5,50 */3 1-4 * * *", "America/New_York"),
            Cron("10 * * * *", "Europe/Berlin"),
            Daily(["02:30:05", "02:30:50", "03:00:05", "03:00:20", "03:00:50"], "America/New_York"),
        ],
    )
    @pytest.mark.parametrize("month", [3, 10, 11])
    def test_counts_by_minute_are_those_of_the_ticks_also_when_clocks_are_set(
        self, schedule: Periodic | Daily | Cron, month: int
    ) -> None:
        since = datetime(2024, month, 10 if month == 3 else 27 if month == 10 else 3, 0, 10, 33, tzinfo=UTC)
        table = Timetable(schedule, since + timedelta(minutes=7, seconds=11), since + timedelta(hours=9, seconds=5))
        for until in (since + timedelta(hours=8, seconds=30), since + timedelta(hours=12)):
            listed = Counter(tick.replace(second=0, microsecond=0) for tick in table.after(since, until))
            assert list(table.per_slice(since, until, timedelta(minutes=1))) == sorted(listed.items())

    @pytest.mark.parametrize(
        "schedule",
        [
            Periodic(timedelta(minutes=7)),
            Periodic(HOUR),
            Cron("*/20 9-17 * * *", "Asia/Kolkata"),
            Cron("*/10 * * * *", "Australia/Lord_Howe"),
            Cron("*/15 1-3 * * *", "Australia/Lord_Howe"),
            Cron("0,59 * * * *", "America/New_York"),
            Daily(["01:15", "02:30", "03:00"], "Europe/London"),
        ],
    )
    @pytest.mark.parametrize("month", [3, 4, 10, 11])
    @pytest.mark.parametrize("origin", [BEGIN, BEGIN + timedelta(minutes=30)])
    def test_counts_by_hour_are_those_of_the_ticks_also_when_clocks_are_set(
        self, schedule: Periodic | Daily | Cron, month: int, origin: datetime
    ) -> None:
        since = datetime(2024, month, 1, 0, 10, 33, tzinfo=UTC)
        table, until = Timetable(schedule), since + timedelta(days=31)
        listed = Counter(tick - (tick - origin) % HOUR for tick in table.after(since, until))
        assert list(table.per_slice(since, until, HOUR, origin)) == sorted(listed.items())

    def test_a_week_of_seconds_is_counted_in_full(self) -> None:
        counts = list(
            Timetable(Cron("* * * * * *", "UTC")).per_slice(NOON, NOON + timedelta(days=7), timedelta(minutes=1))
        )
        assert sum(count for _, count in counts) == 7 * 24 * 3600
        assert len(counts) == 7 * 24 * 60 + 1

    def test_both_ends_are_included(self) -> None:
        table = Timetable(Periodic(HOUR), at(14), at(16))
        assert list(table.after(NOON)) == [at(14), at(15), at(16)]

    def test_the_last_tick_is_found_however_many_are_before_it(self) -> None:
        assert Timetable(Periodic(timedelta(seconds=1))).last_until(NOON, at(0) - 3650 * DAY) == NOON
        assert Timetable(Cron("0 0 29 2 *", "UTC")).last_until(NOON, at(0) - 3650 * DAY) == datetime(
            2020, 2, 29, tzinfo=UTC
        )
        assert Timetable(Periodic(HOUR)).last_until(at(12, 30), at(12)) is None

    def test_jitter_is_the_same_every_time_and_within_its_bounds(self) -> None:
        most = timedelta(minutes=5)
        delays = [jitter("p", NOON + n * HOUR, most) for n in range(100)]
        assert delays == [jitter("p", NOON + n * HOUR, most) for n in range(100)]
        assert all(timedelta(0) <= delay < most for delay in delays)
        assert len(set(delays)) > 90
