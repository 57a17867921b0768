"""Processes join, leave and are killed: the server runs while one of them is left, and no longer."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tarry.storage.postgres.embedded import EmbeddedSettings, start
from tarry.storage.postgres.embedded.home import find_binaries
from tarry.storage.postgres.embedded.supervisor.layout import Layout
from tests.storage.postgres.embedded.embedded_kit import (
    Sandbox,
    await_stopped,
    eventually,
    insert,
    is_locked,
    kill_server,
    open_sandbox,
    state_of,
    supervisors_of,
    values,
)


@pytest.fixture
def bare() -> Iterator[Sandbox]:
    with open_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(bare: Sandbox) -> Sandbox:
    return bare.furnish()


def test_processes_share_one_server_and_the_last_to_leave_stops_it(sandbox: Sandbox) -> None:
    first = sandbox.process()
    insert(first.dsn, 1)
    second = sandbox.process()
    assert second.dsn == first.dsn
    before = state_of(sandbox.home)
    first.leave()
    assert values(second.dsn) == [1]
    assert state_of(sandbox.home) == before
    second.leave()
    await_stopped(sandbox.home)
    assert not Layout(sandbox.home).postmaster_pid.exists(), "it was stopped in good order"
    assert sandbox.process().dsn == first.dsn
    assert values(first.dsn) == [1]


def test_the_server_outlives_the_process_that_started_it_being_killed(sandbox: Sandbox) -> None:
    owner = sandbox.process()
    insert(owner.dsn, 1)
    other = sandbox.process()
    assert other.dsn == owner.dsn
    before = state_of(sandbox.home)
    owner.kill()
    insert(other.dsn, 2)
    assert state_of(sandbox.home) == before
    other.kill()
    await_stopped(sandbox.home)
    assert values(sandbox.process().dsn) == [1, 2]


def test_nothing_is_left_of_a_server_whose_only_process_was_killed(sandbox: Sandbox) -> None:
    owner = sandbox.process()
    insert(owner.dsn, 1)
    owner.kill()
    await_stopped(sandbox.home)
    eventually(lambda: supervisors_of(sandbox.home) == [], "its supervisor has ended too")
    assert values(sandbox.process().dsn) == [1]


def test_a_killed_postgresql_is_restarted_for_its_users(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    before = state_of(sandbox.home)
    os.kill(before.postmaster, signal.SIGKILL)
    later = sandbox.process()
    # A new connection may have been accepted just before the kill was noticed.
    eventually(
        lambda: Layout(sandbox.home).state.exists() and state_of(sandbox.home) != before, "a new PostgreSQL is ready"
    )
    assert later.dsn == user.dsn
    insert(user.dsn, 2)
    assert values(later.dsn) == [1, 2]
    assert state_of(sandbox.home).supervisor == before.supervisor


def test_committed_rows_survive_when_everything_is_killed_at_once(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    connection = psycopg.connect(user.dsn)
    connection.execute("insert into kept values (2)")
    kill_server(sandbox.home)
    user.kill()
    connection.close()
    assert values(sandbox.process().dsn) == [1]


def test_a_killed_supervisor_takes_its_server_along_and_the_next_process_starts_both(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    before = state_of(sandbox.home)
    os.kill(before.supervisor, signal.SIGKILL)
    later = sandbox.process()
    assert values(later.dsn) == [1]
    after = state_of(sandbox.home)
    assert after.supervisor != before.supervisor
    assert after.postmaster != before.postmaster
    assert values(user.dsn) == [1], "the dsn that the first process has is as good as before"
    user.leave()
    assert values(later.dsn) == [1]
    later.leave()
    await_stopped(sandbox.home)


def test_a_supervisor_that_gets_a_signal_stops_the_server_in_good_order(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    os.kill(state_of(sandbox.home).supervisor, signal.SIGTERM)
    await_stopped(sandbox.home)
    assert not Layout(sandbox.home).postmaster_pid.exists()
    assert values(sandbox.process().dsn) == [1]


def test_a_stopped_server_is_started_again_for_the_next_process(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    os.kill(state_of(sandbox.home).postmaster, signal.SIGINT)
    await_stopped(sandbox.home)
    insert(sandbox.process().dsn, 2)
    assert values(user.dsn) == [1, 2]


def test_many_first_starts_at_the_same_instant_make_one_server(bare: Sandbox) -> None:
    crowd = [bare.process() for _ in range(6)]
    assert len({process.dsn for process in crowd}) == 1
    for value, process in enumerate(crowd):
        insert(process.dsn, value)
    assert values(crowd[0].dsn) == [0, 1, 2, 3, 4, 5]
    assert (bare.home / "server.log").read_text().count("running bootstrap script") == 1
    assert len(list(bare.home.glob("pgdata*"))) == 1


def test_a_process_that_arrives_while_the_last_one_leaves_always_gets_a_server(sandbox: Sandbox) -> None:
    settings = EmbeddedSettings(data_dir=sandbox.home)

    def visit(turns: int) -> int:
        done = 0
        for _ in range(turns):
            with start(settings) as server, psycopg.connect(server.dsn) as connection:
                connection.execute("select 1")
                done += 1
        return done

    # Between two rounds no process is left, so the first of a round arrives while the server of the round before stops.
    with ThreadPoolExecutor(3) as pool:
        for _ in range(10):
            assert list(pool.map(visit, [8, 8, 8])) == [8, 8, 8]
    stops = (sandbox.home / "server.log").read_text().count("received fast shutdown request")
    await_stopped(sandbox.home)
    assert stops >= 1, "no process was ever the last to leave, so this proves nothing"


def test_a_forked_child_keeps_the_server_when_its_parent_leaves(sandbox: Sandbox) -> None:
    process = sandbox.process("fork-and-leave")
    insert(process.dsn, 1)
    assert process.popen.wait() == 0
    assert is_locked(Layout(sandbox.home).server_lock)
    assert values(process.dsn) == [1]
    process.leave()
    await_stopped(sandbox.home)


def test_a_program_started_by_a_user_does_not_keep_the_server(sandbox: Sandbox) -> None:
    process = sandbox.process("leave-a-program")
    left = int(process.report["pid"])
    process.leave()
    try:
        await_stopped(sandbox.home)
        os.kill(left, 0)
    finally:
        os.kill(left, signal.SIGKILL)


def halting_initdb(sandbox: Sandbox, program: str) -> Path:
    """A bin directory like that of the wheel, but for an initdb that a test can follow."""
    real = find_binaries("18", "").folder
    halting = sandbox.directory / "bin"
    halting.mkdir()
    (halting / "postgres").symlink_to(real / "postgres")
    (halting / "initdb").write_text(f"#!/bin/sh\n{program.format(initdb=real / 'initdb', room=sandbox.directory)}\n")
    (halting / "initdb").chmod(0o755)
    os.mkfifo(sandbox.directory / "reached")
    os.mkfifo(sandbox.directory / "go-on")
    return halting


def test_an_initdb_that_was_killed_half_way_is_done_again(bare: Sandbox) -> None:
    halting = halting_initdb(bare, '{initdb} "$@"; echo > {room}/reached; exec sleep 600')
    unlucky = bare.process(binaries=str(halting))
    (bare.directory / "reached").read_text()
    [supervisor] = supervisors_of(bare.home)
    os.kill(supervisor, signal.SIGKILL)
    unlucky.kill()
    assert [path.name[:11] for path in bare.home.glob("pgdata*")] == ["pgdata.new-"]
    insert(bare.process().dsn, 1)
    assert [path.name for path in bare.home.glob("pgdata*")] == ["pgdata"]


def test_a_start_continues_for_waiting_processes_when_the_process_that_began_it_is_killed(bare: Sandbox) -> None:
    halting = halting_initdb(bare, 'echo > {room}/reached; read _ < {room}/go-on; exec {initdb} "$@"')
    reached, go_on = bare.directory / "reached", bare.directory / "go-on"
    unlucky = bare.process(binaries=str(halting))
    reached.read_text()
    unlucky.kill()
    later = bare.process()
    eventually(lambda: is_locked(Layout(bare.home).users_lock), "the next one has arrived")
    go_on.write_text("\n")
    # It is called twice: to make the files, and to sync them.
    reached.read_text()
    go_on.write_text("\n")
    insert(later.dsn, 1)
    assert (bare.home / "server.log").read_text().count("running bootstrap script") == 1
