"""Workers as processes on a real PostgreSQL: killed, frozen, stopped, replaced one by one under load."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from tarry import Message
from tarry.core.messages.outcomes import Settled
from tests.services.processes import TIMEOUT_S, Scene, scene_on


@pytest.fixture
def scene(database: str) -> Iterator[Scene]:
    with scene_on(database) as scene:
        yield scene


def gated(n: int) -> list[Message[dict[str, bool]]]:
    return [Message(key=f"k{i}", payload={"gated": True}) for i in range(n)]


def test_what_a_killed_worker_held_is_handled_by_another(scene: Scene) -> None:
    scene.block_handlers()
    scene.jobs.offer_many(gated(5))
    first = scene.program(lease_s=2)
    second = scene.program("-c", "5", lease_s=2)
    scene.until_started(5)
    victims = {key for key, _, pid in scene.ledger("started") if pid == first.pid}
    if not victims:
        first, second = second, first
        victims = {key for key, _, pid in scene.ledger("started") if pid == first.pid}
    first.signal(signal.SIGKILL)
    assert first.await_end() == -signal.SIGKILL
    scene.release_handlers()
    second.started()
    scene.until_empty()
    finished = scene.ledger("finished")
    assert {key for key, _, _ in finished} == {f"k{i}" for i in range(5)}
    assert all(attempt >= 2 for key, attempt, _ in finished if key in victims)
    for key in victims:
        assert scene.kinds(key).count("acked") == 1
        assert "expired" in scene.kinds(key)


def test_on_a_signal_it_finishes_what_runs_and_releases_the_rest_uncounted(scene: Scene) -> None:
    program = scene.program("-c", "2")
    scene.jobs.offer_many([Message(key=f"quick{i}", payload={}) for i in range(4)])
    scene.until_empty()  # now it knows that handlers are quick, and leases ahead
    scene.block_handlers()
    scene.jobs.offer_many(gated(6))
    scene.until(lambda: scene.numbers() == (2, 4))  # two run, two are held unstarted
    scene.until_started(6)
    program.signal(signal.SIGTERM)
    scene.until(lambda: scene.numbers() == (4, 2))
    program.await_line("still running")
    scene.release_handlers()
    assert program.await_end() == 0
    assert scene.numbers() == (4, 0)
    waiting = scene.jobs.try_poll_many(6)
    assert [delivery.attempt for delivery in waiting] == [1] * 4  # this one included: none was burned
    assert Counter(attempt for _, attempt, _ in scene.ledger("finished")) == {1: 6}
    program.await_line("released unstarted")  # how many, depends on whether the poll that leased them had ended


def test_after_the_grace_handlers_are_cancelled_and_released(scene: Scene) -> None:
    scene.block_handlers()
    scene.jobs.offer_many(gated(2))
    program = scene.program("--grace", "0s")
    scene.until_started(2)
    program.signal(signal.SIGINT)
    assert program.await_end() == 0
    assert scene.numbers() == (2, 0)
    assert [delivery.attempt for delivery in scene.jobs.try_poll_many(2)] == [1, 1]
    assert scene.ledger("finished") == []


def test_a_second_signal_ends_it_at_once_and_the_lease_runs_out(scene: Scene) -> None:
    scene.block_handlers()
    scene.jobs.offer_many(gated(1))
    program = scene.program()
    scene.until_started(1)
    program.signal(signal.SIGTERM)
    program.await_line("still running")
    signalled_s = monotonic()
    program.signal(signal.SIGTERM)
    assert program.await_end() == 130
    assert monotonic() - signalled_s < 10  # and not the grace of 30 seconds
    stored = scene.jobs.read("k0")
    assert stored is not None
    assert (stored.attempt, "released" in scene.kinds("k0")) == (1, False)


def test_a_frozen_worker_that_wakes_up_settles_nothing(scene: Scene) -> None:
    scene.block_handlers()
    scene.jobs.offer_many(gated(2))
    program = scene.program("-c", "2", lease_s=2)
    scene.until_started(2)
    program.signal(signal.SIGSTOP)
    scene.until(lambda: scene.numbers() == (2, 0))  # its leases have run out
    other = scene.jobs.try_poll()  # another consumer leases k0, and none leases k1
    assert other is not None
    assert (other.key, other.attempt) == ("k0", 2)
    scene.release_handlers()  # the handlers of the frozen one could finish now
    program.signal(signal.SIGCONT)
    program.await_line("lost", 2)
    assert other.ack() is Settled.DONE
    scene.until_empty()
    program.signal(signal.SIGTERM)
    assert program.await_end() == 0
    for key, consumers in (("k0", 2), ("k1", 1)):
        events = scene.app.store.run(scene.app.store.journal.timeline("jobs", key))
        # Done once, by the second attempt; and both attempts can be seen.
        assert [event.attempt for event in events if event.kind == "acked"] == [2]
        assert [event.attempt for event in events if event.kind == "leased"] == [1, 2]
        assert len({event.consumer for event in events if event.kind == "leased"}) == consumers


def test_processes_are_replaced_under_load_without_a_lost_or_doubled_message(scene: Scene) -> None:
    replace_one_by_one(scene, rounds=1, messages=300)


@pytest.mark.chaos
def test_processes_are_replaced_again_and_again(scene: Scene) -> None:
    replace_one_by_one(scene, rounds=10, messages=6_000)


def replace_one_by_one(scene: Scene, *, rounds: int, messages: int) -> None:
    programs = [scene.program("-c", "4") for _ in range(3)]
    for program in programs:
        program.started()
    steps = 3 * rounds
    for step in range(steps):
        keys = range(step * messages // steps, (step + 1) * messages // steps)
        scene.jobs.offer_many([Message(key=f"k{i}", payload={"for_s": 0.01}) for i in keys])
        scene.until(lambda keys=keys: len(scene.ledger("started")) > keys.start)  # it is at work
        old = programs.pop(0)
        old.signal(signal.SIGTERM)
        programs.append(scene.program("-c", "4"))
        assert old.await_end() == 0
        programs[-1].started()
    scene.until_empty()
    finished = scene.ledger("finished")
    assert Counter(key for key, _, _ in finished) == {f"k{i}": 1 for i in range(messages)}
    assert {attempt for _, attempt, _ in finished} == {1}
    assert len(scene.ledger("started")) == messages


def test_a_worker_process_that_dies_is_replaced_and_none_outlives_the_first(scene: Scene) -> None:
    program = scene.program("--processes", "2")
    program.await_line("working on", 2)
    psutil.Process(program.pid).children()[0].kill()
    program.await_line("was ended by SIGKILL")
    program.await_line("working on", 3)
    scene.jobs.offer_many([Message(key=f"k{i}", payload={}) for i in range(20)])
    scene.until_empty()
    children = psutil.Process(program.pid).children()
    os.kill(program.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=TIMEOUT_S)
    assert (len(gone), alive) == (2, [])


def test_a_signal_to_every_worker_process_is_one_signal(scene: Scene) -> None:
    """As systemd and a shell do it: the first process and the others are signalled at the same time."""
    scene.block_handlers()
    scene.jobs.offer_many(gated(2))
    program = scene.program("--processes", "2", "-c", "1")
    scene.until_started(2)
    for child in psutil.Process(program.pid).children():
        child.send_signal(signal.SIGTERM)
    program.signal(signal.SIGTERM)
    program.await_line("still running", 2)
    program.await_line("the supervisor stops this process", 2)
    scene.release_handlers()
    assert program.await_end() == 0
    assert sorted((key, attempt) for key, attempt, _ in scene.ledger("finished")) == [("k0", 1), ("k1", 1)]
    assert scene.numbers() == (0, 0)


def test_a_change_of_the_code_starts_it_again(scene: Scene, tmp_path: Path) -> None:
    module = tmp_path / "tasks.py"
    code = "import tarry\nworker = tarry.Worker()\n@worker.handler('jobs')\ndef handle(x: object) -> object:\n    return {}\n"
    module.write_text(code.format("tarry.Bury('old')"))
    program = scene.program("--reload", target="tasks:worker", cwd=tmp_path)
    program.started()
    module.write_text("this is not Python")
    program.await_line("waiting for a change")
    module.write_text(code.format("tarry.Bury('new')"))
    program.await_line("working on", 2)
    scene.jobs.offer("a", 1)
    scene.until(lambda: scene.jobs.dead_letters.list())
    assert [letter.error for letter in scene.jobs.dead_letters.list()] == ["new"]
    program.signal(signal.SIGTERM)
    assert program.await_end() == 0
