"""tarry cron, scheduler, calendar: schedules from the command line."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from tarry.app import App
from tests.edges.conftest import Run

FILE = """
[schedules.daily-report]
cron = "0 2 * * *"
zone = "Europe/Berlin"
queue = "reports"
payload = { kind = "daily" }

[schedules.heartbeat]
every = "5m"
queue = "beats"
misfire = "skip"

[schedules."odd/name %"]
daily = ["08:00", "17:30"]
zone = "America/New_York"
queue = "reports"
overlap = "skip"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedules.toml"
    path.write_text(FILE)
    return path


class TestWithoutADatabase:
    def test_a_preview_of_an_expression_marks_clock_changes(self, run: Run) -> None:
        ran = run(
            "cron",
            "preview",
            "30 2 * * *",
            "--zone",
            "Europe/Berlin",
            "-n",
            "3",
            "--since",
            "2026-03-27T00:00:00Z",
            "--json",
        )
        assert ran.code == 0
        assert [fire["local"] for fire in ran.data["fires"]] == [
            "Fri 2026-03-27 02:30:00 +0100",
            "Sat 2026-03-28 02:30:00 +0100",
            "Sun 2026-03-29 03:00:00 +0200",
        ]
        assert ran.data["fires"][2]["note"] == "the clock is set forward here"

    def test_explain_an_expression(self, run: Run) -> None:
        ran = run("cron", "explain", "*/15 * * * *", "--zone", "America/New_York", "--json")
        assert ran.data["kind"].startswith("elapsed time")
        assert len(ran.data["changes"]) == 2
        assert run("cron", "explain", "0 */2 * * *", "--zone", "UTC", "--json").data["kind"].startswith("wall clock")

    def test_what_is_wrong_is_named_with_what_to_do(self, run: Run) -> None:
        ran = run("cron", "preview", "61 * * * *", "--zone", "UTC")
        assert (ran.code, "minute field" in ran.err, "hint:" in ran.err) == (2, True, True)
        assert "hint: did you mean Europe/Berlin" in run("cron", "preview", "0 2 * * *", "--zone", "Europe/Berln").err
        assert "needs a zone" in run("cron", "preview", "0 2 * * *").err
        assert "has 3 fields" in run("cron", "preview", "* * *", "--zone", "UTC").err

    def test_lint_names_every_problem(self, run: Run, file: Path) -> None:
        assert run("cron", "lint", str(file)).code == 0
        file.write_text(
            FILE.replace("0 2 * * *", "0 25 * * *").replace("5m", "5 parsecs") + '\n[schedules.x]\nwhen = "now"\n'
        )
        ran = run("cron", "lint", str(file), "--json")
        assert ran.code == 7
        problems = {problem["name"]: problem["problem"] for problem in ran.data["problems"]}
        assert set(problems) == {"daily-report", "heartbeat", "x"}
        assert "hour field" in problems["daily-report"]


class TestSchedules:
    def test_the_life_of_a_schedule(self, cli: Run, app: App) -> None:
        added = cli("cron", "add", "hello", "--every", "1h", "--queue", "hellos", "--payload", '{"hi": 1}', "--json")
        assert (added.code, added.data["schema"], added.data["kind"]) == (0, "tarry.schedule/1", "periodic")
        assert cli("cron", "add", "hello", "--every", "1h", "--queue", "hellos").code == 4
        assert [item["name"] for item in cli("cron", "list", "--json").data["schedules"]] == ["hello"]
        assert cli("cron", "edit", "hello", "--every", "30m", "--misfire", "all", "--json").data["misfire"] == "all"
        assert cli("cron", "edit", "hello").code == 2
        assert cli("cron", "pause", "hello", "--reason", "because", "--json").data["paused_reason"] == "because"
        assert "hello is paused" in cli("cron", "preview", "hello").err
        assert cli("cron", "resume", "hello", "--json").data["paused"] is False
        assert cli("cron", "trigger", "hello").code == 0
        delivery = app.queue("hellos").try_poll()
        assert delivery is not None
        assert (delivery.payload, delivery.headers["tarry-schedule"]) == ({"hi": 1}, "hello")
        skipped = cli("cron", "skip", "hello", "--json").data["tick"]
        assert "skipped" in cli("cron", "explain", "hello", "--at", skipped).out
        assert "which is skipped" in cli("cron", "show", "hello").out
        assert "every 30m" in cli("cron", "explain", "hello").out
        assert [item["verdict"] for item in cli("cron", "preview", "hello", "-n", "2", "--json").data["fires"]] == [
            "skipped",
            None,
        ]
        shown = cli("cron", "show", "hello", "--json").data
        assert {tick["verdict"] for tick in shown["ticks"]} >= {"triggered", "skipped"}
        assert cli("cron", "delete", "hello").code == 2
        assert cli("cron", "delete", "hello", "--yes").code == 0
        gone = cli("cron", "show", "hello", "--json")
        assert (gone.code, gone.data["ticks"]) == (0, shown["ticks"])
        assert cli("cron", "show", "absent").code == 3

    def test_a_backfill_counts_first(self, cli: Run, app: App) -> None:
        cli("cron", "add", "hello", "--cron", "0 * * * *", "--zone", "UTC", "--queue", "hellos")
        span = ("--since", "2020-01-01T00:00:00Z", "--until", "2020-01-01T06:00:00Z")
        assert cli("cron", "backfill", "hello", *span, "--dry-run", "--json").data["count"] == 6
        assert app.queue("hellos").try_poll() is None
        assert cli("cron", "backfill", "hello", *span).code == 2
        assert cli("cron", "backfill", "hello", *span, "--yes", "--json").data["made"] is True
        assert len(app.queue("hellos").try_poll_many(10)) == 6

    def test_a_file_is_applied_as_a_whole(self, cli: Run, app: App, file: Path) -> None:
        dry = cli("cron", "apply", str(file), "--dry-run", "--json").data
        assert ([change["sign"] for change in dry["changes"]], app.schedules.list()) == (["+", "+", "+"], [])
        assert cli("cron", "apply", str(file)).code == 0
        assert [state.name for state in app.schedules.list()] == ["daily-report", "heartbeat", "odd/name %"]
        result = cli("cron", "apply", str(file))
        assert ("daily-report" in result.out, "0 changes made, 3 unchanged" in result.err) == (False, True)
        again = cli("cron", "apply", str(file), "--json").data
        assert [change["sign"] for change in again["changes"]] == ["=", "=", "="]
        app.cron().install_periodic("by-code", app.schedules.get("heartbeat").spec.schedule.every, queue="beats")  # pyright: ignore[reportAttributeAccessIssue]
        file.write_text(FILE.replace("5m", "10m").partition('[schedules."odd')[0])
        changed = cli("cron", "apply", str(file), "--prune", "--yes", "--json").data["changes"]
        assert [(change["sign"], change["name"]) for change in changed] == [
            ("=", "daily-report"), ("~", "heartbeat"), ("-", "odd/name %"),
        ]  # fmt: skip
        assert [state.name for state in app.schedules.list()] == ["by-code", "daily-report", "heartbeat"]

    def test_one_bad_schedule_keeps_the_whole_file_out(self, cli: Run, app: App, file: Path) -> None:
        file.write_text(FILE + '\n[schedules.bad]\ncron = "nonsense"\nzone = "UTC"\nqueue = "q"\n')
        assert cli("cron", "apply", str(file)).code == 2
        assert app.schedules.list() == []

    def test_the_calendar_has_what_is_delayed_tried_again_and_planned(self, cli: Run, app: App) -> None:
        from datetime import timedelta

        queue = app.queue("hellos")
        queue.offer("later", 1, after=timedelta(hours=5))
        queue.offer("now", 1)
        delivery = queue.try_poll()
        assert delivery is not None
        delivery.nack(after=timedelta(hours=3))
        app.cron().install_periodic("hourly", timedelta(hours=1), queue="hellos")
        data = cli("calendar", "--next", "24h", "--json").data
        sums = {kind: sum(part[kind] for part in data["slices"]) for kind in ("delayed", "retries", "cron")}
        assert sums == {"delayed": 2, "retries": 1, "cron": 23}  # the next tick is a message already
        shown = cli("calendar", "--next", "24h")
        assert "█" in shown.out
        assert "23 cron" in shown.err
        assert cli("calendar", "--next", "2h").code == 0
        assert cli("calendar", "--queue", "absent").code == 3


class TestAsAnOperatorWould:
    def test_changes_are_shown_before_the_confirmation(self, cli: Run, app: App, file: Path) -> None:
        assert cli("cron", "apply", str(file)).code == 0
        file.write_text(FILE.partition('[schedules."odd')[0])
        refused = cli("cron", "apply", str(file), "--prune")
        assert (refused.code, "no longer in the file" in refused.out) == (2, True)
        assert len(app.schedules.list()) == 3

    def test_a_schedule_of_another_owner_is_taken_over_only_on_request(self, cli: Run, app: App, file: Path) -> None:
        cli("cron", "add", "heartbeat", "--every", "1h", "--queue", "q")
        refused = cli("cron", "apply", str(file))
        assert (refused.code, "source: 'cli' → 'file:schedules.toml'" in refused.out) == (2, True)
        assert [state.spec.source for state in app.schedules.list()] == ["cli"]
        assert cli("cron", "apply", str(file), "--yes").code == 0
        assert {state.spec.source for state in app.schedules.list()} == {"file:schedules.toml"}

    def test_two_files_of_one_name_with_different_owners_do_not_prune_each_other(
        self, cli: Run, app: App, file: Path, tmp_path: Path
    ) -> None:
        file.write_text('name = "billing"\n' + FILE)
        other = tmp_path / "other" / file.name
        other.parent.mkdir()
        other.write_text('name = "mail"\n[schedules.mails]\nevery = "1m"\nqueue = "q"\n')
        for path in (file, other, file):
            assert cli("cron", "apply", str(path), "--prune", "--yes").code == 0
        assert len(app.schedules.list()) == 4
        assert app.schedules.get("mails").spec.source == "file:mail"
        other.write_text("name = 7\n")
        assert "must be text of 1 to 100 characters" in cli("cron", "lint", str(other)).out

    def test_a_problem_of_a_file_comes_with_what_to_write(self, run: Run, file: Path) -> None:
        file.write_text(
            '[schedules.a]\ncron = "0 2 * * *"\nzone = "Europe/Berln"\nqueue = "q"\n'
            '[schedules.b]\ncron = "0 2 * * *"\nqueue = "q"\n'
            '[schedules.c]\nevery = "5m"\n'
            '[schedules.d]\nqueue = "q"\n'
            '[schedules.e.f]\nevery = "5m"\nqueue = "q"\n'
            '[schedules.g]\nevery = "5m"\nqueue = "q"\nstart = 2030-01-02T00:00:00Z\nend = 2030-01-01T00:00:00Z\n'
        )
        problems = {
            problem["name"]: problem["problem"] for problem in run("cron", "lint", str(file), "--json").data["problems"]
        }
        assert "did you mean Europe/Berlin" in problems["a"]
        assert 'zone = "Europe/Berlin"' in problems["b"]
        assert 'queue = "reports"' in problems["c"]
        assert "one of cron, daily and every" in problems["d"]
        assert '[schedules."e.f"]' in problems["e"]
        assert "is before start_at" in problems["g"]
        file.write_text('[schedules.a]\nevery = "5m"\nqueue = "q"\n[schedules.a]\nevery = "6m"\n')
        ran = run("cron", "lint", str(file))
        assert (ran.code, "twice (at line 4" in ran.err) == (2, True)

    def test_times_of_day_may_be_written_as_toml_has_them(self, run: Run, file: Path) -> None:
        file.write_text('[schedules.x]\ndaily = [08:00:00, "17:30"]\nzone = "UTC"\nqueue = "q"\n')
        assert run("cron", "lint", str(file)).code == 0
        file.write_text('[schedules.x]\ndaily = 08:00:00\nzone = "UTC"\nqueue = "q"\n')
        assert run("cron", "lint", str(file)).code == 0

    def test_what_can_hardly_be_meant_is_named(self, run: Run, file: Path) -> None:
        file.write_text(
            '[schedules.a]\nevery = "5m"\nqueue = "q"\njitter = "10m"\n'
            '[schedules.b]\nevery = "5m"\nqueue = "q"\ncatch_up = "2h"\n'
            '[schedules.c]\nevery = "5m"\nqueue = "q"\nend = 2020-01-01T00:00:00Z\n'
            '[schedules.d]\nevery = 300\nqueue = "q"\n'
            '[schedules.e]\ndaily = [8]\nzone = "UTC"\nqueue = "q"\n'
        )
        ran = run("cron", "lint", str(file), "--json")
        problems = {problem["name"]: problem["problem"] for problem in ran.data["problems"]}
        assert (ran.code, sorted(problems)) == (7, ["a", "b", "c", "d", "e"])
        assert "longer than the time between two ticks" in problems["a"]
        assert "only with misfire" in problems["b"]
        assert "never fires again" in problems["c"]
        assert 'every must be text, such as "5m"' in problems["d"]
        assert "an hour is a time of day" in problems["e"]

    def test_an_end_can_be_given_and_taken_away(self, cli: Run) -> None:
        cli("cron", "add", "hello", "--every", "1h", "--queue", "q", "--end", "2040-01-01T00:00:00Z")
        assert cli("cron", "edit", "hello", "--end", "none", "--json").data["end_at"] is None

    def test_a_payload_that_is_too_long_is_refused(self, cli: Run, app: App, tmp_path: Path) -> None:
        long = tmp_path / "long.json"
        long.write_text(f'"{"x" * 300_000}"')
        ran = cli("cron", "add", "hello", "--every", "1h", "--queue", "q", "--payload", f"@{long}")
        assert (ran.code, "262,144 are allowed" in ran.err, app.schedules.list()) == (2, True, [])

    def test_a_backfill_that_ends_before_it_begins_is_refused(self, cli: Run) -> None:
        cli("cron", "add", "hello", "--every", "1h", "--queue", "q")
        ran = cli(
            "cron", "backfill", "hello", "--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z", "-n"
        )
        assert (ran.code, "it ends first" in ran.err) == (2, True)

    def test_a_name_may_look_like_an_alias(self, cli: Run) -> None:
        cli("cron", "add", "@home", "--every", "1h", "--queue", "q")
        assert len(cli("cron", "preview", "@home", "-n", "2", "--json").data["fires"]) == 2
        assert "no alias" in cli("cron", "preview", "@reboot", "--zone", "UTC").err


class TestScheduler:
    def test_once(self, cli: Run, app: App) -> None:
        from datetime import timedelta

        app.cron().install_periodic("hourly", timedelta(hours=1), queue="hellos")
        assert cli("scheduler", "--once", "--json").data == {"schema": "tarry.scheduler/1", "planned": 0, "failed": {}}

    def test_it_plans_until_it_is_signalled_to_stop(self, app: App, process: Callable[..., Popen[bytes]]) -> None:
        from datetime import timedelta

        app.cron().install_periodic("ticks", timedelta(seconds=1), queue="ticks")
        running = process("scheduler")
        ticks = [app.queue("ticks").poll(timedelta(seconds=60)) for _ in range(3)]
        assert all(ticks)
        assert len({delivery.key for delivery in ticks if delivery is not None}) == 3
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
