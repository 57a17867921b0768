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
from tarry.storage.postgres.embedded.supervisor.layout import Layout, StartError, open_lock
from tarry.storage.postgres.embedded.supervisor.postgres import claim_server, discard_socket_dir, prepare_socket_dir
from tarry.storage.postgres.embedded.supervisor.run import LOG_LIMIT, keep_small, open_log, tail
from tests.storage.postgres.embedded.embedded_kit import (
    ORDINARY_UID,
    Sandbox,
    await_stopped,
    insert,
    kill_server,
    needs_root,
    open_sandbox,
    state_of,
    values,
)

TOO_LONG = "a-rather-long-name/" * 6


@pytest.fixture
def bare() -> Iterator[Sandbox]:
    with open_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(bare: Sandbox) -> Sandbox:
    return bare.furnish()


@pytest.mark.parametrize("name", [TOO_LONG, "with, a comma", "späce and ümlaut % 'quote\""])
def test_any_path_will_do(bare: Sandbox, name: str) -> None:
    home = bare.directory / name
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


def test_a_short_directory_for_the_socket_is_kept_for_processes_that_use_it(bare: Sandbox) -> None:
    layout = Layout(bare.directory / TOO_LONG)
    layout.home.mkdir(parents=True)
    first = prepare_socket_dir(layout, None)
    (first / "left-by-a-killed-server").touch()
    assert prepare_socket_dir(layout, None) == first
    assert list(first.iterdir()) == []
    discard_socket_dir(layout, first)
    assert not first.exists()


def test_the_users_runtime_directory_is_preferred_to_a_shared_one(bare: Sandbox) -> None:
    layout = Layout(bare.directory / TOO_LONG)
    layout.home.mkdir(parents=True)
    assert prepare_socket_dir(layout, bare.directory).parent == bare.directory


@needs_root
def test_a_directory_for_the_socket_that_another_user_created_is_not_used(bare: Sandbox) -> None:
    layout = Layout(bare.directory / TOO_LONG)
    layout.home.mkdir(parents=True)
    trap = bare.directory / "trap"
    trap.mkdir(mode=0o700)
    os.chown(trap, ORDINARY_UID, ORDINARY_UID)
    layout.short_socket_dir.write_text(str(trap))
    chosen = prepare_socket_dir(layout, bare.directory)
    assert chosen != trap
    assert chosen.stat().st_uid == 0
    short = Layout(bare.directory)
    trap.rename(short.socket_dir)
    with pytest.raises(StartError, match="is not a directory of uid 0"):
        prepare_socket_dir(short, None)


def test_a_link_in_place_of_the_socket_directory_is_not_followed(bare: Sandbox) -> None:
    elsewhere = bare.directory / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    layout = Layout(bare.directory / "home")
    layout.home.mkdir()
    layout.socket_dir.symlink_to(elsewhere)
    with pytest.raises(StartError, match="is not a directory"):
        prepare_socket_dir(layout, None)


def test_files_of_another_major_version_are_left_alone(bare: Sandbox) -> None:
    with start(EmbeddedSettings(data_dir=bare.home, binaries="16")) as old:
        insert(old.dsn, 1)
        with pytest.raises(EmbeddedError, match="holds data of PostgreSQL 16, and the binaries are PostgreSQL 18"):
            start(EmbeddedSettings(data_dir=bare.home, binaries="18"))
        assert values(old.dsn) == [1]


def test_a_pid_that_belongs_to_another_process_by_now_does_not_prevent_a_start(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    kill_server(sandbox.home)
    user.kill()
    await_stopped(sandbox.home)
    layout = Layout(sandbox.home)
    note = layout.postmaster_pid.read_text().split("\n", 1)
    layout.postmaster_pid.write_text(f"{os.getpid()}\n{note[1]}")
    [lock] = layout.socket_dir.glob("*.lock")
    note = lock.read_text().split("\n", 1)
    lock.write_text(f"{os.getpid()}\n{note[1]}")
    assert values(sandbox.process().dsn) == [1]


def leftover(layout: Layout, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that holds the server lock as PostgreSQL's do, and ends on request."""
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


def test_a_postgresql_that_outlived_its_supervisor_is_stopped(bare: Sandbox) -> None:
    layout = Layout(bare.directory)
    layout.pgdata.mkdir()
    with leftover(layout, "-D", str(layout.pgdata)) as orphan:
        layout.postmaster_pid.write_text(f"{orphan.pid}\n")
        os.close(claim_server(layout))
        assert orphan.wait() != -signal.SIGKILL
    assert not layout.postmaster_pid.exists()


def test_an_unrelated_process_with_the_recorded_pid_gets_no_signal(
    bare: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.storage.postgres.embedded.supervisor.postgres.STOP_FOR", 0.1)
    layout = Layout(bare.directory)
    layout.pgdata.mkdir()
    with leftover(layout) as bystander:
        layout.postmaster_pid.write_text(f"{bystander.pid}\n")
        with pytest.raises(StartError, match="do not end"):
            claim_server(layout)
        assert bystander.poll() is None
        bystander.kill()


def test_a_server_that_does_not_start_reports_why(sandbox: Sandbox) -> None:
    user = sandbox.process()
    insert(user.dsn, 1)
    user.leave()
    await_stopped(sandbox.home)
    conf = sandbox.home / "pgdata" / "postgresql.conf"
    good = conf.read_text()
    conf.write_text(good + "\nshared_buffers = 'a lot'\n")
    error = sandbox.process().error
    assert 'invalid value for parameter "shared_buffers": "a lot"' in error
    assert str(sandbox.home / "server.log") in error
    conf.write_text(good)
    assert values(sandbox.process().dsn) == [1]


def test_an_initdb_that_fails_reports_why_and_leaves_nothing(bare: Sandbox) -> None:
    broken = bare.directory / "bin"
    broken.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text(
            "#!/bin/sh\necho postgres 18; echo no space left on device >&2; test $1 = --version\n"
        )
        (broken / name).chmod(0o755)
    assert "no space left on device" in bare.process(binaries=str(broken)).error
    assert list(bare.home.glob("pgdata*")) == []
    insert(bare.process().dsn, 1)


def test_a_directory_with_other_files_is_refused_and_keeps_its_permissions(bare: Sandbox) -> None:
    bare.home.mkdir(mode=0o755)
    (bare.home / "thesis.txt").touch()
    with pytest.raises(EmbeddedError, match=r"was not made by Tarry \(it holds 'thesis.txt'\)"):
        start(EmbeddedSettings(data_dir=bare.home))
    assert stat.S_IMODE(bare.home.stat().st_mode) == 0o755


def test_a_file_in_place_of_the_directory_is_refused(bare: Sandbox) -> None:
    bare.home.touch()
    with pytest.raises(EmbeddedError, match="cannot be used"):
        start(EmbeddedSettings(data_dir=bare.home))


def test_a_path_that_postgresql_cannot_note_down_is_refused(bare: Sandbox) -> None:
    with pytest.raises(EmbeddedError, match="has a line break"):
        start(EmbeddedSettings(data_dir=bare.directory / "a\nb"))


def test_an_empty_directory_that_others_could_enter_is_closed(bare: Sandbox) -> None:
    bare.home.mkdir(mode=0o755)
    with start(EmbeddedSettings(data_dir=bare.home)):
        assert stat.S_IMODE(bare.home.stat().st_mode) == 0o700


def test_the_log_is_kept_small_while_the_server_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = open_log(path)
    os.write(log, b"x" * LOG_LIMIT)
    keep_small(path)
    assert path.stat().st_size == LOG_LIMIT
    os.write(log, b"too much")
    keep_small(path)
    os.write(log, b"after")
    os.close(log)
    assert path.read_bytes() == b"after"
    assert (tmp_path / "server.log.1").stat().st_size == LOG_LIMIT + len("too much")
    assert tail(path, 2) == "ter"
