"""Bad days: odd paths, leftovers of the dead, files of another version, servers that do not start."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.storage.postgres.embedded import EmbeddedError, EmbeddedSettings, start
from tarry.storage.postgres.embedded.supervisor.layout import Layout
from tarry.storage.postgres.embedded.supervisor.locks import open_lock
from tarry.storage.postgres.embedded.supervisor.log import LIMIT, keep_small, open_log, tail
from tarry.storage.postgres.embedded.supervisor.postmaster import claim_server
from tarry.storage.postgres.embedded.supervisor.report import StartError
from tarry.storage.postgres.embedded.supervisor.sockets import discard, prepare
from tests.storage.embedded_kit import (
    NOBODY,
    Place,
    await_stopped,
    insert,
    kill_server,
    needs_root,
    open_place,
    state_of,
    values,
)

TOO_LONG = "a-rather-long-name/" * 6


@pytest.fixture
def bare() -> Iterator[Place]:
    with open_place() as place:
        yield place


@pytest.fixture
def place(bare: Place) -> Place:
    return bare.furnish()


@pytest.mark.parametrize("name", [TOO_LONG, "with, a comma", "späce and ümlaut % 'quote\""])
def test_any_path_will_do(bare: Place, name: str) -> None:
    home = bare.room / name
    bare.furnish(home)
    first = bare.process(home=home)
    insert(first.dsn, 1)
    folder = state_of(home).socket_dir
    assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    assert folder.lstat().st_uid == os.geteuid()
    second = bare.process(home=home)
    first.leave()
    assert values(second.dsn) == [1]
    second.leave()
    await_stopped(home)
    assert folder.is_relative_to(home) or not folder.exists(), "nothing is left in a shared place"


def test_a_short_directory_for_the_socket_is_kept_for_those_who_know_it(bare: Place) -> None:
    layout = Layout(bare.room / TOO_LONG)
    layout.home.mkdir(parents=True)
    first = prepare(layout, None)
    (first / "left-by-a-killed-server").touch()
    assert prepare(layout, None) == first
    assert list(first.iterdir()) == []
    discard(layout, first)
    assert not first.exists()


def test_the_users_runtime_directory_is_preferred_to_a_shared_one(bare: Place) -> None:
    layout = Layout(bare.room / TOO_LONG)
    layout.home.mkdir(parents=True)
    assert prepare(layout, bare.room).parent == bare.room


@needs_root
def test_a_directory_for_the_socket_that_somebody_else_put_there_is_not_used(bare: Place) -> None:
    layout = Layout(bare.room / TOO_LONG)
    layout.home.mkdir(parents=True)
    trap = bare.room / "trap"
    trap.mkdir(mode=0o700)
    os.chown(trap, NOBODY, NOBODY)
    layout.short_socket_dir.write_text(str(trap))
    chosen = prepare(layout, bare.room)
    assert chosen != trap
    assert chosen.stat().st_uid == 0
    short = Layout(bare.room)
    trap.rename(short.socket_dir)
    with pytest.raises(StartError, match="is not a directory of uid 0"):
        prepare(short, None)


def test_a_link_in_place_of_the_socket_directory_is_not_followed(bare: Place) -> None:
    elsewhere = bare.room / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    layout = Layout(bare.room / "home")
    layout.home.mkdir()
    layout.socket_dir.symlink_to(elsewhere)
    with pytest.raises(StartError, match="is not a directory"):
        prepare(layout, None)


def test_files_of_another_major_version_are_left_alone(bare: Place) -> None:
    with start(EmbeddedSettings(data_dir=bare.home, binaries="16")) as old:
        insert(old.dsn, 1)
        with pytest.raises(EmbeddedError, match="holds data of PostgreSQL 16, and the binaries are PostgreSQL 18"):
            start(EmbeddedSettings(data_dir=bare.home, binaries="18"))
        assert values(old.dsn) == [1]


def test_a_pid_that_is_somebody_elses_by_now_does_not_stand_in_the_way(place: Place) -> None:
    user = place.process()
    insert(user.dsn, 1)
    kill_server(place.home)
    user.kill()
    await_stopped(place.home)
    layout = Layout(place.home)
    note = layout.postmaster_pid.read_text().split("\n", 1)
    layout.postmaster_pid.write_text(f"{os.getpid()}\n{note[1]}")
    [lock] = layout.socket_dir.glob("*.lock")
    note = lock.read_text().split("\n", 1)
    lock.write_text(f"{os.getpid()}\n{note[1]}")
    assert values(place.process().dsn) == [1]


def leftover(layout: Layout, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that holds the server lock as PostgreSQL's do, and ends when told to."""
    lock = open_lock(layout.server_lock)
    program = (
        f"import fcntl, signal, sys; fcntl.flock({lock}, fcntl.LOCK_EX); signal.signal(signal.SIGINT, sys.exit)\n"
        "print(flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], pass_fds=[lock], stdout=subprocess.PIPE)
    os.close(lock)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_postgresql_that_outlived_its_supervisor_is_told_to_stop(bare: Place) -> None:
    layout = Layout(bare.room)
    layout.pgdata.mkdir()
    with leftover(layout, "-D", str(layout.pgdata)) as orphan:
        layout.postmaster_pid.write_text(f"{orphan.pid}\n")
        os.close(claim_server(layout))
        assert orphan.wait() != -signal.SIGKILL
    assert not layout.postmaster_pid.exists()


def test_a_process_that_only_has_the_pid_is_not_told_anything(bare: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.storage.postgres.embedded.supervisor.postmaster.STOP_FOR", 0.1)
    layout = Layout(bare.room)
    layout.pgdata.mkdir()
    with leftover(layout) as bystander:
        layout.postmaster_pid.write_text(f"{bystander.pid}\n")
        with pytest.raises(StartError, match="do not end"):
            claim_server(layout)
        assert bystander.poll() is None
        bystander.kill()


def test_a_server_that_does_not_start_says_why(place: Place) -> None:
    user = place.process()
    insert(user.dsn, 1)
    user.leave()
    await_stopped(place.home)
    conf = place.home / "pgdata" / "postgresql.conf"
    good = conf.read_text()
    conf.write_text(good + "\nshared_buffers = 'a lot'\n")
    error = place.process().error
    assert 'invalid value for parameter "shared_buffers": "a lot"' in error
    assert str(place.home / "server.log") in error
    conf.write_text(good)
    assert values(place.process().dsn) == [1]


def test_an_initdb_that_fails_says_why_and_leaves_nothing(bare: Place) -> None:
    broken = bare.room / "bin"
    broken.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text(
            "#!/bin/sh\necho postgres 18; echo no space left on device >&2; test $1 = --version\n"
        )
        (broken / name).chmod(0o755)
    assert "no space left on device" in bare.process(binaries=str(broken)).error
    assert list(bare.home.glob("pgdata*")) == []
    insert(bare.process().dsn, 1)


def test_a_directory_that_holds_something_else_is_refused_and_not_closed_to_others(bare: Place) -> None:
    bare.home.mkdir(mode=0o755)
    (bare.home / "thesis.txt").touch()
    with pytest.raises(EmbeddedError, match=r"was not made by Tarry \(it holds 'thesis.txt'\)"):
        start(EmbeddedSettings(data_dir=bare.home))
    assert stat.S_IMODE(bare.home.stat().st_mode) == 0o755


def test_a_file_in_place_of_the_directory_is_refused(bare: Place) -> None:
    bare.home.touch()
    with pytest.raises(EmbeddedError, match="cannot be used"):
        start(EmbeddedSettings(data_dir=bare.home))


def test_a_path_that_postgresql_cannot_note_down_is_refused(bare: Place) -> None:
    with pytest.raises(EmbeddedError, match="has a line break"):
        start(EmbeddedSettings(data_dir=bare.room / "a\nb"))


def test_an_empty_directory_that_others_could_enter_is_closed(bare: Place) -> None:
    bare.home.mkdir(mode=0o755)
    with start(EmbeddedSettings(data_dir=bare.home)):
        assert stat.S_IMODE(bare.home.stat().st_mode) == 0o700


def test_the_log_is_kept_small_while_somebody_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = open_log(path)
    os.write(log, b"x" * LIMIT)
    keep_small(path)
    assert path.stat().st_size == LIMIT
    os.write(log, b"too much")
    keep_small(path)
    os.write(log, b"after")
    os.close(log)
    assert path.read_bytes() == b"after"
    assert (tmp_path / "server.log.1").stat().st_size == LIMIT + len("too much")
    assert tail(path, 2) == "ter"
