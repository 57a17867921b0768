"""Histories made by hand: each promise broken once, and nearly broken once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.checker.check import check
from tests.chaos.checker.journal import Event
from tests.chaos.checker.register import Step, linearizable
from tests.chaos.recording import OK, UNKNOWN, Fault, History, Left, Operation, with_transactions

T = 1_000_000
"""A second, in microseconds; leases last for ten."""
TICK = 1_800_000_000
"""An even second, in seconds."""


def offer(at: int, *, key: str = "k", payload: str = "p", result: str = "created", delay: int = 0) -> Operation:
    return Operation("c", "offer", "main", [[[key, payload, delay, "replace"]], False], at, at + 10, OK, [[result]])


def lease(at: int, token: str, *, version: int = 1, payload: str = "p", attempt: int = 1, due_at: int = 0) -> Operation:
    grant = ["k", payload, version, token, attempt, due_at, at + 5, at + 5 + 10 * T]
    return Operation("c", "poll", "main", [1], at, at + 10, OK, [[grant]])


def settle(at: int, verb: str, token: str, result: str = "done", delay: int = 0) -> Operation:
    return Operation("c", verb, "main", [[["k", token]], delay, False], at, at + 10, OK, [[result]])


def counted(*operations: Operation, left: Left | None = None, faults: tuple[Fault, ...] = ()) -> dict[str, int]:
    return check(History(list(operations), list(faults), left)).broken


HONEST = [offer(0), lease(T, "a"), settle(2 * T, "ack", "a")]


def test_an_honest_history_is_honest() -> None:
    assert counted(*HONEST, left=Left()) == {}


def test_an_offer_without_an_end_is_lost() -> None:
    assert counted(offer(0), left=Left()) == {"lost": 1}
    assert counted(offer(0), lease(T, "a"), settle(2 * T, "ack", "a", "lease_lost"), left=Left()) == {"lost": 1}
    assert counted(offer(0), left=Left(live=[("main", "k", "p", 1)])) == {"not_empty": 1}
    assert counted(offer(0), left=Left(dead=[("main", "k", "p", 1, 3)])) == {}
    assert counted(offer(0, result="ignored"), left=Left()) == {}


def test_an_offer_that_was_replaced_dropped_or_purged_is_not_lost() -> None:
    newer = offer(T, payload="q", result="updated")
    assert counted(offer(0), newer, left=Left(live=[("main", "k", "q", 2)])) == {"not_empty": 1}
    drop = Operation("c", "drop", "main", ["k"], T, T + 10, OK, [True])
    assert counted(offer(0), drop, left=Left()) == {}
    purge = Operation("c", "purge", "main", [], T, T + 10, OK, [1])
    assert counted(offer(0), purge, left=Left()) == {}
    before = Operation("c", "drop", "main", ["k"], -T, -T + 10, OK, [True])
    assert counted(offer(0), before, left=Left()) == {"lost": 1}


def test_a_drop_that_found_nothing_during_a_fault_may_have_dropped_before_its_reply_was_lost() -> None:
    drop = Operation("c", "drop", "main", ["k"], T, T + 10, OK, [False])
    assert counted(offer(0), drop, left=Left()) == {"lost": 1}
    assert counted(offer(0), drop, left=Left(), faults=(Fault("replies lost", T - 5, T + 5),)) == {}
    assert counted(offer(0), drop, left=Left(), faults=(Fault("replies lost", 2 * T, 3 * T),)) == {"lost": 1}


def test_only_a_failover_to_a_standby_that_was_behind_may_lose() -> None:
    failover = Fault("failover", -1, 3 * T, crash=True, forgets=True)
    assert counted(offer(0), left=Left(), faults=(failover,)) == {}
    crash = Fault("postmaster killed", -1, 3 * T, crash=True)
    assert counted(offer(0), left=Left(), faults=(crash,)) == {"lost": 1}


def test_what_was_never_offered_is_unexpected() -> None:
    assert counted(lease(T, "a")) == {"unexpected": 1}
    assert counted(offer(0, payload="q"), lease(T, "a", payload="pp")) == {"unexpected": 1}
    elsewhere = offer(0)
    elsewhere.queue = "register"
    assert counted(elsewhere, lease(T, "a")) == {"unexpected": 1}


@pytest.mark.parametrize("result", ["ignored", "leased", "gone"])
def test_an_edit_that_changed_nothing_during_a_fault_may_have_changed_it_before_its_reply_was_lost(result: str) -> None:
    edit = Operation("c", "edit", "main", ["k", "edited"], T, T + 10, OK, [result])
    delivery = lease(2 * T, "a", payload="edited")
    assert counted(offer(0), edit, delivery) == {"unexpected": 1}
    assert counted(offer(0), edit, delivery, faults=(Fault("replies lost", T - 5, T + 5),)) == {}


def test_two_leases_at_a_time_overlap() -> None:
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b", attempt=2)) == {"overlapping": 1}
    assert counted(offer(0), lease(T, "a"), lease(11 * T + 5, "b", attempt=2)) == {}, "the first had run out"
    given_back = settle(2 * T, "nack", "a")
    assert counted(offer(0), lease(T, "a"), given_back, lease(5 * T, "b", attempt=2)) == {}
    crash = Fault("postmaster killed", 2 * T, 3 * T, crash=True)
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b"), faults=(crash,)) == {}, "the crash took it back"
    harmless = Fault("client killed", 2 * T, 3 * T)
    assert counted(offer(0), lease(T, "a"), lease(5 * T, "b", attempt=2), faults=(harmless,)) == {"overlapping": 1}


def test_tokens_and_versions_are_issued_once_and_grow() -> None:
    again = lease(12 * T, "a", attempt=2)
    assert counted(offer(0), lease(T, "a"), again)["token_reused"] == 1
    older = [offer(20 * T, payload="q"), lease(21 * T, "b", version=1, payload="q")]
    assert counted(offer(0), lease(T, "a", version=5), settle(2 * T, "ack", "a"), *older) == {"version_back": 1}


def test_a_settle_after_another_client_has_the_message_is_stale() -> None:
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


def test_one_offer_makes_one_version() -> None:
    assert counted(*HONEST, lease(15 * T, "b", version=2)) == {"stored_twice": 1}
    retried = offer(0)
    retried.facts[1] = True
    assert counted(retried, *HONEST[1:], lease(15 * T, "b", version=2)) == {}


def test_nothing_is_early() -> None:
    assert counted(offer(0), lease(T, "a", due_at=2 * T)) == {"early": 1}
    assert counted(offer(0, delay=5 * T), lease(T, "a")) == {"early": 1}
    nack = settle(2 * T, "nack", "a", delay=5 * T)
    assert counted(offer(0), lease(T, "a"), nack, lease(3 * T, "b", attempt=2)) == {"early": 1}


def test_attempts_count_up_to_the_limit() -> None:
    history = [offer(0), lease(T, "a"), lease(12 * T, "b", attempt=1)]
    assert counted(*history) == {"attempts_wrong": 1}
    assert counted(*history, settle(2 * T, "release", "a")) == {}
    assert counted(offer(0), lease(T, "a", attempt=9)) == {"attempts_wrong": 1}
    dead = ("main", "k", "p", 1, 3)
    assert counted(left=Left(dead=[dead, dead])) == {"died_twice": 1}
    assert counted(left=Left(dead=[("main", "k", "p", 1, 9)])) == {"attempts_wrong": 1}


def test_each_item_of_a_batch_has_its_own_outcome() -> None:
    short = offer(0)
    short.result = [[]]
    assert counted(short) == {"batch_wrong": 1}
    much = Operation("c", "poll", "main", [0], T, T + 10, OK, [lease(T, "a").result[0]])
    assert counted(offer(0), much) == {"batch_wrong": 1}


def test_a_paused_queue_delivers_nothing() -> None:
    pause = Operation("c", "pause", "main", [], 0, 10, OK)
    resume = Operation("c", "resume", "main", [], 5 * T, 5 * T + 10, OK)
    assert counted(pause, offer(20), lease(T, "a"), resume) == {"delivered_while_paused": 1}
    assert counted(pause, offer(20), lease(6 * T, "a"), resume) == {}


def test_an_error_without_a_name_is_counted() -> None:
    assert counted(Operation("c", "poll", "main", [1], 0, 1, "ZeroDivisionError: no")) == {"errors": 1}


def test_operations_of_a_transaction_are_what_its_commit_was() -> None:
    def transaction(**commit: Any) -> list[Operation]:
        inner = offer(0)
        inner.transaction = 1
        ends = [Operation("c", "commit", "", [], T, **commit, transaction=1)] if commit else []
        return with_transactions([inner, *ends])

    assert counted(*transaction(returned=T + 10, status=OK), left=Left()) == {"lost": 1}
    assert counted(*transaction(status=UNKNOWN), left=Left()) == {}
    assert counted(*transaction(), left=Left()) == {}


def test_an_effect_happens_once_if_its_ack_does() -> None:
    effect = Operation("c", "effect", "main", ["p"], 3 * T, 3 * T + 10, OK)
    assert counted(*HONEST, effect, left=Left(effects=["p"])) == {}
    assert counted(*HONEST, effect, left=Left()) == {"effect_wrong": 1}
    assert counted(*HONEST, left=Left(effects=["p", "p"])) == {"effect_wrong": 1}


def step(at: int, until: float, verb: str, payload: str | None, outcome: Any = None) -> Step:
    return Step(at, until, verb, payload, outcome, "replace")


def test_results_fit_an_order_that_real_time_allows() -> None:
    created = step(0, 1, "offer", "p", "created")
    assert linearizable([created, step(2, 3, "observe", "p")])
    assert not linearizable([created, step(2, 3, "observe", None)])
    assert linearizable([created, step(0, 3, "observe", None)]), "they overlap"
    assert not linearizable([created, step(2, 3, "offer", "q", "created")])
    assert linearizable([created, step(2, 3, "drop", None, True), step(4, 5, "offer", "q", "created")])
    assert linearizable([created, step(2, 9e9, "drop", None, UNKNOWN), step(4, 5, "observe", None)])
    assert linearizable([created, step(2, 9e9, "drop", None, UNKNOWN), step(4, 5, "observe", "p")])
    assert not linearizable([created, step(2, 3, "ack", "q", "done")])
    assert not linearizable([Step(0, 1, "offer", "p", "created"), Step(2, 3, "offer", "q", "updated", "keep")])


def put(at: float, period_s: int) -> Operation:
    return Operation("c", "put", "cron", ["s", period_s * T], int(at * T), int(at * T) + 10, OK, [f"h{period_s}"])


def fired(second: int, config: str, version: int) -> Operation:
    key = f"s/{config}/20270115-0800{second - TICK:02d}.000000000"
    grant = [key, "s", version, f"{config}{second}", 1, second * T, second * T + 5, second * T + 5 + 10 * T]
    return Operation("c", "poll", "cron", [1], second * T, second * T + 10, OK, [[grant]])


def test_every_tick_makes_one_message() -> None:
    ticks = [fired(TICK + n, "h2", n) for n in (0, 2, 4)]
    left = Left(planned_until=(TICK + 5) * T)
    assert counted(put(TICK - 0.5, 2), *ticks, left=left) == {}
    assert counted(put(TICK - 0.5, 2), ticks[0], ticks[2], left=left) == {"tick_missing": 1}
    assert counted(put(TICK - 0.5, 2), *ticks, fired(TICK + 2, "h1", 9), left=left) == {"tick_doubled": 1}


def test_no_tick_of_a_replaced_configuration_fires() -> None:
    change = put(TICK + 0.5, 2)
    assert counted(put(TICK - 0.5, 1), fired(TICK, "h1", 1), change, fired(TICK + 1, "h1", 2)) == {"tick_stale": 1}
    later = put(TICK + 1.5, 2)
    assert counted(put(TICK - 0.5, 1), fired(TICK, "h1", 1), later, fired(TICK + 1, "h1", 2)) == {}


def stream(at: int, *ids: int, gap: str | None = None) -> Operation:
    return Operation("f", "feed", "", [None], at, at + 10, OK, [[[n, n * T] for n in ids], gap, "x", True])


def journaled(*feeds: Operation, kinds: tuple[str, ...] = (), faults: tuple[Fault, ...] = ()) -> dict[str, int]:
    events = [Event("main", "k", n, n * T, kind, 1) for n, kind in enumerate(kinds, 1)]
    return check(History(list(feeds), list(faults), Left()), events).broken


def test_a_reader_of_the_journal_gets_every_event_once_or_a_gap() -> None:
    kinds = ("offered", "leased", "acked")
    assert journaled(stream(0), stream(5 * T, 1, 2, 3), stream(6 * T), kinds=kinds) == {}
    assert journaled(stream(0), stream(5 * T, 1, 3), stream(6 * T), kinds=kinds) == {"event_missing": 1}
    assert journaled(stream(0), stream(5 * T, 1, 2, 3, 3), stream(6 * T), kinds=kinds) == {"event_doubled": 1}
    assert journaled(stream(0), stream(5 * T, 1, 2, 3, 4), stream(6 * T), kinds=kinds) == {"event_unknown": 1}
    assert journaled(stream(0), stream(5 * T, 3, gap="too_far"), stream(6 * T), kinds=kinds) == {}
    again = stream(6 * T, 1, 2, 3)
    assert journaled(stream(0), stream(5 * T, 1, 2, gap="failover"), again, stream(7 * T), kinds=kinds) == {}


def test_the_journal_adds_up_to_the_tables() -> None:
    assert journaled(kinds=("offered", "leased")) == {"journal_wrong": 1}, "nothing is live"
    assert journaled(kinds=("offered", "leased", "acked", "acked")) == {"journal_wrong": 1}
    assert journaled(kinds=("offered", "buried")) == {"journal_wrong": 1}, "nothing is dead"
