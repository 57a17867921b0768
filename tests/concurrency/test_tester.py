"""Tests of the tester: bugs that others have shipped, planted into our own SQL, must be found within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.concurrency.harness import MOST_ATTEMPTS, Nemesis, crowd, reckon
from tests.concurrency.history import check
from tests.concurrency.planted import BUGS
from tests.concurrency.recording import OK, UNKNOWN, Fault, History, Left, Operation, read
from tests.storage.fallible import fallible_server

FOUND_AS = {
    "ack by key": "stale_settle_won",
    "token kept on re-offer": "replaced_settle_won",
    "lease that ignores leases": "overlapping",
    "touch after expiry": "late_touch_won",
    "lease that ignores the time": "early",
    "ack that removes nothing": "delivered_after_ack",
    "attempts that do not count": "attempts_wrong",
}
NEEDS_A_CRASH = {"offer that does not wait for the disk": "lost"}
ROUNDS = 30


def test_every_bug_is_looked_for() -> None:
    assert FOUND_AS.keys() | NEEDS_A_CRASH.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", FOUND_AS)
def test_a_planted_bug_is_found(database: str, tmp_path: Path, bug: str) -> None:
    with crowd(database, tmp_path / "histories", bug=bug, hot=0.6) as clients:
        clients.start(2, tasks=8)
        broken: dict[str, int] = {}
        for _ in range(ROUNDS):
            clients.await_written(60_000)
            # Not yet over: what is still under way counts as unknown, and what is left is not looked at.
            broken = check(History(read(clients.folder), most_attempts=MOST_ATTEMPTS)).broken
            if FOUND_AS[bug] in broken:
                return
    pytest.fail(f"not found; broken was {broken}")


@pytest.mark.parametrize("bug", NEEDS_A_CRASH)
def test_an_offer_that_did_not_wait_for_the_disk_is_found_lost_after_a_crash(tmp_path: Path, bug: str) -> None:
    """Offers only: an ack would wait for the disk, and take the offers before it along."""
    with fallible_server() as server, crowd(server.dsn, tmp_path / "h", bug=bug, hot=0, offers_only=True) as clients:
        clients.start(2)
        nemesis = Nemesis(server, clients, seed=1)
        clients.await_written(50_000)
        nemesis.strike("postmaster killed")
        clients.await_written(5_000)
        clients.stop()
        assert reckon(server.dsn, clients.folder, nemesis.faults).lost > 0


# Histories made by hand: each promise broken once, and nearly broken once.

T = 1_000_000
"""A second, in microseconds; leases last for ten."""


def offer(at: int, *, key: str = "k", payload: str = "p", result: str = "created", delay: int = 0) -> Operation:
    return Operation("c", "offer", [key, payload, delay], at, at + 10, OK, [result])


def lease(at: int, token: str, *, version: int = 1, payload: str = "p", attempt: int = 1, due_at: int = 0) -> Operation:
    grant = ["k", payload, version, token, attempt, due_at, at + 5, at + 5 + 10 * T]
    return Operation("c", "lease", [1], at, at + 10, OK, [grant])


def settle(at: int, verb: str, token: str, result: str = "done") -> Operation:
    return Operation("c", verb, ["k", token], at, at + 10, OK, [result])


def counted(*operations: Operation, left: Left | None = None, faults: tuple[Fault, ...] = ()) -> dict[str, int]:
    verdict = check(History(list(operations), faults, left or Left(), most_attempts=3))
    verdict.lost = verdict.lost if left else 0
    return verdict.broken


HONEST = [offer(0), lease(T, "a"), settle(2 * T, "ack", "a")]


def test_an_honest_history_is_honest() -> None:
    assert counted(*HONEST, left=Left()) == {}


def test_an_offer_without_an_end_is_lost() -> None:
    assert counted(offer(0), left=Left()) == {"lost": 1}
    assert counted(offer(0), lease(T, "a"), settle(2 * T, "ack", "a", "lease_lost"), left=Left()) == {"lost": 1}
    assert counted(offer(0), left=Left(live=["p"])) == {"not_empty": 1}
    assert counted(offer(0), left=Left(dead=[("p", 1, 3)])) == {}
    assert counted(offer(0, result="ignored"), left=Left()) == {}


def test_an_offer_that_was_replaced_or_dropped_is_not_lost() -> None:
    newer = offer(T, payload="q", result="updated")
    assert counted(offer(0), newer, left=Left(live=["q"])) == {"not_empty": 1}
    assert counted(newer, offer(2 * T), left=Left(live=["p"])) == {"not_empty": 1}, "the older one was replaced"
    assert counted(offer(0), Operation("c", "drop", ["k"], T, T + 1, OK, [True]), left=Left()) == {}
    assert counted(offer(0), Operation("c", "drop", ["k"], T, T + 1, OK, [False]), left=Left()) == {"lost": 1}


def test_an_answer_that_was_never_heard_explains_either_end() -> None:
    assert counted(Operation("c", "offer", ["k", "p", 0], 0), left=Left()) == {}
    assert (
        counted(Operation("c", "offer", ["k", "p", 0], 0), lease(T, "a"), settle(2 * T, "ack", "a"), left=Left()) == {}
    )
    assert counted(offer(0), lease(T, "a"), Operation("c", "ack", ["k", "a"], 2 * T, answer=UNKNOWN), left=Left()) == {}


def test_a_payload_that_nobody_offered_is_unexpected() -> None:
    assert counted(offer(0), lease(T, "a", payload="pp")) == {"unexpected": 1}


def test_two_leases_at_a_time_overlap() -> None:
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b", attempt=2)) == {"overlapping": 1}
    assert counted(offer(0), lease(T, "a"), lease(11 * T + 5, "b", attempt=2)) == {}, "the first had run out"
    given_back = settle(2 * T, "nack", "a")
    assert counted(offer(0), lease(T, "a"), given_back, lease(5 * T, "b", attempt=2)) == {}
    crash = Fault("postmaster killed", 2 * T, 3 * T)
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b", attempt=1), faults=(crash,)) == {}, (
        "the crash took it back"
    )
    harmless = Fault("client killed", 2 * T, 3 * T)
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b", attempt=2), faults=(harmless,)) == {"overlapping": 1}


def test_a_settle_after_somebody_else_has_the_message_is_stale() -> None:
    history = [offer(0), lease(T, "a"), lease(12 * T, "b", attempt=2)]
    assert counted(*history, settle(13 * T, "ack", "a")) == {"stale_settle_won": 1}
    assert counted(*history, settle(13 * T, "ack", "a", "lease_lost")) == {}
    assert counted(*history, settle(11 * T + 9, "nack", "a"), settle(13 * T, "ack", "b")) == {}


def test_a_settle_after_the_message_was_replaced_is_stale() -> None:
    history = [offer(0), lease(T, "a"), offer(2 * T, payload="q", result="updated")]
    assert counted(*history, settle(3 * T, "ack", "a")) == {"replaced_settle_won": 1}
    assert counted(*history, settle(3 * T, "ack", "a", "lease_lost")) == {}


def test_a_touch_after_the_end_is_late_unless_another_touch_moved_the_end() -> None:
    assert counted(offer(0), lease(T, "a"), settle(12 * T, "touch", "a")) == {"late_touch_won": 1}
    assert counted(offer(0), lease(T, "a"), settle(9 * T, "touch", "a"), settle(18 * T, "touch", "a")) == {}


def test_an_ack_is_final() -> None:
    assert counted(*HONEST, lease(15 * T, "b", attempt=2)) == {"delivered_after_ack": 1}
    twice = settle(16 * T, "ack", "b")
    assert counted(*HONEST, lease(15 * T, "b", attempt=2), twice) == {"delivered_after_ack": 1, "double_ack": 1}


def test_nothing_is_early() -> None:
    assert counted(offer(0), lease(T, "a", due_at=2 * T)) == {"early": 1}
    assert counted(offer(0, delay=5 * T), lease(T, "a")) == {"early": 1}


def test_attempts_count_up_to_the_limit() -> None:
    history = [offer(0), lease(T, "a"), lease(12 * T, "b", attempt=1)]
    assert counted(*history) == {"attempts_wrong": 1}
    assert counted(*history, settle(2 * T, "release", "a")) == {}
    assert counted(offer(0), lease(T, "a", attempt=4)) == {"attempts_wrong": 1}
    assert counted(left=Left(dead=[("p", 1, 3), ("p", 1, 3)])) == {"died_twice": 1}


def test_an_error_without_a_name_is_counted() -> None:
    assert counted(Operation("c", "lease", [1], 0, 1, "ZeroDivisionError: no")) == {"errors": 1}
