"""tarry dlq: what failed for good, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tarry
from tarry.app import App
from tests.edges.conftest import Run


def bury(app: App, *keys: str) -> list[int]:
    """Dead letters of these keys; their versions."""
    app.queues.create("orders", tarry.QueueSettings(max_attempts=1), exist_ok=True)
    versions: list[int] = []
    for key in keys:
        app.queue("orders").offer(key, {"k": key})
        delivery = app.queue("orders").try_poll()
        assert delivery is not None
        delivery.nack(f"broken {key}\nsecond line")
        versions.append(delivery.version)
    return versions


def test_dead_letters_are_listed_the_newest_first(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    ran = cli("dlq", "list", "orders")
    header, newest, oldest = ran.out.splitlines()
    assert header.split() == ["version", "key", "died", "attempt", "reason", "error"]
    assert newest.endswith("broken b")
    assert oldest.endswith("broken a")
    data = cli("dlq", "list", "orders", "--json").data
    assert data["schema"] == "tarry.dead_letter.list/1"
    assert [dead["key"] for dead in data["dead_letters"]] == ["b", "a"]
    assert data["dead_letters"][0]["error"] == "broken b\nsecond line"
    (line,) = cli("dlq", "list", "orders", "--limit", "1", "-o", "jsonl").lines
    assert line["schema"] == "tarry.dead_letter/1"


def test_no_dead_letters_is_good_news(cli: Run, app: App) -> None:
    app.queues.create("orders")
    ran = cli("dlq", "list", "orders")
    assert (ran.code, ran.out) == (0, "")
    assert "no dead letters" in ran.err
    assert cli("dlq", "redrive", "orders").fields["redriven"] == "0"
    assert cli("dlq", "discard", "orders").fields["discarded"] == "0"
    assert "no dead letters" in cli("dlq", "groups", "orders").err


@pytest.mark.parametrize("command", ["groups", "list", "redrive", "discard"])
def test_an_unknown_queue_is_not_found_and_not_created(refusing: Run, command: str) -> None:
    ran = refusing("dlq", command, "typo", "--json")
    assert ran.code == 3
    assert ran.error["exit_code"] == 3


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (("list", "orders", "--group", ""), 2, "--group is empty"),
        (("discard", "orders", "--group", "", "--yes"), 2, "--group is empty"),
        (("list", "orders", "--group", "zzz"), 3, "no group 'zzz'"),
        (("list", "orders", "--group", "zzzzzzzzzzzz"), 2, "0-9 and a-f"),
        (("list", "orders", "--key-prefix", ""), 2, "key"),
        (("list", "orders", "--type", ""), 2, "type"),
        (("list", "orders", "--since", "yesterday-ish"), 2, "hint: write 2h for two hours ago"),
        (("list", "orders", "--since", "-2h"), 2, "--since"),
        (("list", "orders", "--limit", "0"), 2, "--limit"),
        (("show", "orders", "4711"), 3, "no dead letter 4711"),
        (("show", "orders", "-1"), 2, "-1"),
        (("show", "orders", "99999999999999999999999"), 3, "no dead letter"),
        (("discard", "orders", "--version", "99999999999999999999999", "--yes"), 0, ""),
        (("redrive", "orders", "--version", "99999999999999999999999", "--yes"), 3, "none of these"),
        (("redrive", "orders", "--rate", "fast", "--yes"), 2, "--rate is not a rate"),
        (("redrive", "orders", "--rate", "0/s", "--yes"), 2, "--rate is not a rate"),
        (("redrive", "orders", "--rate", "0.0000001/h", "--yes"), 2, "1 per day"),
        (("redrive", "orders", "--canary", "-1", "--yes"), 2, "--canary"),
        (("redrive", "orders", "--group", "zzz", "--yes"), 3, "no group"),
        (("redrive", "orders", "--type", "none", "--yes"), 3, "no dead letter matches"),
        (("redrive", "orders", "--limit", "5", "--type", "x"), 2, "--limit cannot be used with a job"),
        (("redrive", "orders"), 2, "needs a confirmation"),
    ],
)
def test_invalid_options_are_rejected_and_nothing_is_done(
    cli: Run, app: App, args: tuple[str, ...], code: int, problem: str
) -> None:
    bury(app, "a", "b")
    ran = cli("dlq", *args)
    assert (ran.code, problem in ran.err, "Traceback" in ran.err) == (code, True, False), ran.err
    assert app.queues.counts("orders").dead.n == 2


def test_a_redrive_needs_confirmation_and_a_dry_run_does_nothing(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    assert cli("dlq", "redrive", "orders").code == 2
    plan = cli("dlq", "redrive", "orders", "--dry-run", "--limit", "1")
    assert plan.code == 0
    assert plan.out.splitlines()[1].split()[1] == "a"
    assert "nothing was changed" in plan.err
    data = cli("dlq", "redrive", "orders", "-n", "--json").data
    assert data["dry_run"] is True
    assert [dead["key"] for dead in data["dead_letters"]] == ["a", "b"]
    assert app.queues.counts("orders").dead.n == 2


def test_the_oldest_are_redriven_up_to_the_limit(cli: Run, app: App) -> None:
    bury(app, "a", "b", "c")
    ran = cli("dlq", "redrive", "orders", "--limit", "2", "--yes")
    assert ran.code == 0
    assert (ran.fields["redriven"], ran.fields["still dead"]) == ("2", "1")
    assert app.queue("orders").contains("a")
    assert not app.queue("orders").contains("c")


def test_named_versions_are_redriven(cli: Run, app: App) -> None:
    _, second, third = bury(app, "a", "b", "c")
    ran = cli("dlq", "redrive", "orders", "--version", str(second), "--version", str(third), "--yes", "--json")
    assert ran.code == 0
    assert ran.data["schema"] == "tarry.dlq.redrive/1"
    assert (ran.data["redriven"], ran.data["still_dead"]["n"]) == (2, 1)
    assert not app.queue("orders").contains("a")


def test_unknown_versions_are_reported(cli: Run, app: App) -> None:
    (version,) = bury(app, "a")
    absent = cli("dlq", "redrive", "orders", "--version", "999999", "--yes")
    assert absent.code == 3
    some = cli("dlq", "redrive", "orders", "--version", str(version), "--version", "999999", "--yes", "--json")
    assert some.code == 6
    assert (some.data["redriven"], some.data["not_found"]) == (1, 1)
    assert cli("dlq", "redrive", "orders", "--version", "999999", "--dry-run").code == 6
    assert cli("dlq", "redrive", "orders", "--version", "x", "--yes").code == 2


def test_a_dead_letter_whose_key_is_live_stays_dead(cli: Run, app: App) -> None:
    first, second = bury(app, "a", "b")
    app.queue("orders").offer("a", "again")
    some = cli("dlq", "redrive", "orders", "--version", str(first), "--version", str(second), "--yes", "--json")
    assert some.code == 6
    assert (some.data["redriven"], some.data["not_found"], some.data["still_dead"]["n"]) == (1, 0, 1)
    assert cli("dlq", "redrive", "orders", "--dry-run").out == ""
    none = cli("dlq", "redrive", "orders", "--yes")
    assert none.code == 4
    assert "live again" in none.err


def test_discarding_dead_letters_needs_confirmation(cli: Run, app: App) -> None:
    bury(app, "a", "b")
    assert cli("dlq", "discard", "orders").code == 2
    plan = cli("dlq", "discard", "orders", "--dry-run", "--json")
    assert plan.data["matching"] == {"n": 2, "capped": False}
    assert app.queues.counts("orders").dead.n == 2
    ran = cli("dlq", "discard", "orders", "--yes", "--json")
    assert ran.data == {"schema": "tarry.dlq.discard/1", "queue": "orders", "dry_run": False, "discarded": 2}


def test_some_are_discarded_and_the_others_stay(cli: Run, app: App) -> None:
    first, _ = bury(app, "a", "b")
    ran = cli("dlq", "discard", "orders", "--version", str(first), "--yes")
    assert ran.fields["discarded"] == "1"
    assert cli("dlq", "discard", "orders", "--key-prefix", "x", "--yes").fields["discarded"] == "0"
    assert app.queues.counts("orders").dead.n == 1


def test_groups_are_listed_with_what_they_died_of(cli: Run, app: App) -> None:
    versions = bury(app, "1", "2")
    ran = cli("dlq", "groups", "orders")
    header, line = ran.out.splitlines()
    assert header.split() == ["group", "dead", "reason", "last", "first", "attempts", "types", "error"]
    assert line.endswith("broken <n>")
    data = cli("dlq", "groups", "orders", "--json").data
    (group,) = data["groups"]
    assert data["schema"] == "tarry.dead_group.list/1"
    assert group["count"] == {"n": 2, "capped": False}
    assert (group["fewest_attempts"], group["most_attempts"]) == (1, 1)
    example = (group["example"], group["example_key"], group["error"])
    assert example == (versions[1], "2", "broken 2\nsecond line")
    short = group["fingerprint"][:4]
    assert len(cli("dlq", "list", "orders", "--group", short, "--since", "1h", "--json").data["dead_letters"]) == 2
    assert cli("dlq", "list", "orders", "--group", "ffff").code == 3
    assert cli("dlq", "list", "orders", "--since", "+1h").code == 2


def test_one_dead_letter_is_shown_in_full(cli: Run, app: App) -> None:
    (version,) = bury(app, "a")
    ran = cli("dlq", "show", "orders", str(version))
    assert (ran.fields["key"], ran.fields["error"], ran.fields["payload"]) == ("a", "broken a", '{"k":"a"}')
    assert ran.out.splitlines()[-1].strip() == "second line"
    assert len(ran.fields["group"]) == 12
    data = cli("dlq", "show", "orders", str(version), "--json").data
    assert (data["schema"], data["version"], data["origin"]) == ("tarry.dead_letter/1", version, None)
    assert cli("dlq", "show", "orders", "999999").code == 3


class TestJobs:
    def test_a_job_redrives_all_that_fit(self, cli: Run, app: App) -> None:
        bury(app, "a", "b", "c")
        assert cli("dlq", "redrive", "orders", "--job").code == 2, "it needs confirmation"
        plan = cli("dlq", "redrive", "orders", "--rate", "100/s", "--dry-run", "--json")
        assert (plan.data["matching"]["n"], plan.data["blocked"], plan.data["dry_run"]) == (3, 0, True)
        ran = cli("dlq", "redrive", "orders", "--rate", "1000/s", "--yes", "--json")
        assert ran.code == 0
        assert (ran.data["schema"], ran.data["state"], ran.data["redriven"]) == ("tarry.redrive/1", "done", 3)
        assert app.queues.counts("orders").ready.n == 3
        shown = cli("message", "show", "orders", "a").fields
        assert shown["redriven from"].startswith("version ")

    def test_a_group_is_redriven_by_the_beginning_of_its_name(self, cli: Run, app: App) -> None:
        bury(app, "a", "b")
        (first, _) = cli("dlq", "groups", "orders", "--json").data["groups"]
        ran = cli("dlq", "redrive", "orders", "--group", first["fingerprint"][:5], "--yes", "--json")
        assert (ran.data["redriven"], ran.data["where"]["fingerprint"]) == (1, first["fingerprint"])
        assert app.queues.counts("orders").dead.n == 1

    def test_messages_that_cannot_be_redriven_are_reported(self, cli: Run, app: App) -> None:
        bury(app, "a", "b")
        app.queue("orders").offer("a", "new")
        ran = cli("dlq", "redrive", "orders", "--job", "--yes")
        assert (ran.code, ran.fields["redriven"], ran.fields["skipped"]) == (6, "1 of 2", "1")

    def test_nothing_that_fits_is_not_found(self, cli: Run, app: App) -> None:
        bury(app, "a")
        assert cli("dlq", "redrive", "orders", "--type", "other", "--yes").code == 3
        assert cli("dlq", "redrive", "orders", "--rate", "fast", "--yes").code == 2
        assert cli("dlq", "redrive", "orders", "--rate", "5/s", "--limit", "3", "--yes").code == 2

    def test_a_canary_that_dies_again_stops_it_with_a_reason(self, cli: Run, app: App) -> None:
        bury(app, "a", "b")
        started = cli("dlq", "redrive", "orders", "--canary", "1", "--detach", "--yes", "--json")
        job = str(started.data["id"])
        assert (started.code, started.data["state"], started.data["redriven"]) == (0, "running", 0)
        assert app.redrives.get(int(job)).advance().redriven == 1
        delivery = app.queue("orders").try_poll()
        assert delivery is not None
        delivery.nack("still broken")
        watched = cli("redrive", "watch", job)
        assert watched.code == 7
        assert watched.fields["reason"] == f"1 of 1 canaries died again, {delivery.key} of: still broken"
        assert f"tarry redrive resume {job}" in watched.err
        assert "1 of 1 redriven messages died again: tarry dlq list orders" in watched.err
        resumed = cli("redrive", "resume", job, "--watch", "--json")
        assert (resumed.code, resumed.data["state"], resumed.data["redriven"]) == (0, "done", 2)
        assert resumed.data["died_again"] == 1
        assert "1 of 2 redriven messages died again" in cli("redrive", "show", job).err

    def test_jobs_are_listed_paused_and_cancelled(self, cli: Run, app: App) -> None:
        assert "no redrive jobs" in cli("redrive", "list").err
        bury(app, "a", "b")
        job = str(cli("dlq", "redrive", "orders", "--rate", "1/h", "--detach", "--yes", "--json").data["id"])
        paused = cli("redrive", "pause", job, "--reason", "lunch")
        assert (paused.fields["state"], paused.fields["reason"]) == ("paused", "lunch")
        assert cli("redrive", "resume", job).code == 0
        header, line = cli("redrive", "list", "orders").out.splitlines()
        assert header.split()[:4] == ["job", "queue", "state", "redriven"]
        assert line.split()[:3] == [job, "orders", "running"]
        assert cli("redrive", "cancel", job, "--json").data["state"] == "cancelled"
        assert cli("redrive", "cancel", job).code == 0, "it is in the requested state"
        assert cli("redrive", "resume", job).code == 4
        assert cli("redrive", "show", job).fields["state"] == "cancelled"
        assert cli("redrive", "show", "999999").code == 3
        assert cli("redrive", "list", "typo").code == 3


class TestSweeper:
    def test_one_round_reports_its_work(self, cli: Run, app: App) -> None:
        app.queues.create("orders", tarry.QueueSettings(max_attempts=2))
        app.queue("orders").offer("a", 1)
        assert app.queue("orders").try_poll() is not None
        app.queues.edit("orders", max_attempts=1)
        ran = cli("sweeper", "--once", "--json")
        assert (ran.code, ran.data["schema"], ran.data["leading"]) == (0, "tarry.sweep/1", True)
        assert (ran.data["queues"], ran.data["buried"], ran.data["partitions"]["ahead"]) == (1, 0, 8)
        assert cli("sweeper", "--once").fields["leading"] == "yes"

    def test_one_round_does_nothing_while_another_process_leads(self, cli: Run, app: App) -> None:
        assert app.store.run(app.store.maintenance.acquire("sweeper", "alice", timedelta(minutes=1)))
        ran = cli("sweeper", "--once")
        assert (ran.code, ran.fields["leader"]) == (0, "alice")
        assert "nothing was done: alice leads" in ran.err
        assert cli("sweeper", "--every", "0s").code == 2
