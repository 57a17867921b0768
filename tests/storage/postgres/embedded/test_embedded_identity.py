"""The account of PostgreSQL: for root, for ordinary users, and where the system refuses the usual way."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.storage.postgres.embedded.supervisor.identity import ACCOUNTS
from tests.storage.postgres.embedded.embedded_kit import (
    NAMELESS,
    ORDINARY_UID,
    Sandbox,
    await_stopped,
    insert,
    needs_namespaces,
    needs_root,
    open_sandbox,
    state_of,
    values,
)

pytestmark = needs_root


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as sandbox:
        yield sandbox


def permissions_of_parents(home: Path) -> list[tuple[Path, int, int, int]]:
    facts = [(parent, parent.stat()) for parent in home.parents]
    return [(parent, fact.st_mode, fact.st_uid, fact.st_gid) for parent, fact in facts]


def owners_below(home: Path) -> set[int]:
    return {path.lstat().st_uid for path in (home, *home.rglob("*"))}


def user_namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115 (not a path)


def effective_uid(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@needs_namespaces
def test_root_needs_no_other_account_and_opens_nothing_up(sandbox: Sandbox) -> None:
    closed = sandbox.directory / "closed"
    closed.mkdir(mode=0o700)
    home = closed / "deep" / "home"
    home.parent.mkdir(mode=0o700)
    parents, accounts = permissions_of_parents(home), Path("/etc/passwd").read_bytes()
    process = sandbox.process(home=home)
    insert(process.dsn, 1)
    postmaster = state_of(home).postmaster
    assert user_namespace(postmaster) != user_namespace("self")
    assert effective_uid(postmaster) == 0, "seen from outside it is root, without any of root's powers:"
    assert "CapEff:\t0000000000000000" in Path(f"/proc/{postmaster}/status").read_text()
    assert owners_below(home) == {0}
    assert permissions_of_parents(home) == parents
    assert Path("/etc/passwd").read_bytes() == accounts


def test_where_namespaces_are_refused_an_existing_account_runs_it(sandbox: Sandbox) -> None:
    parents, accounts = permissions_of_parents(sandbox.home), Path("/etc/passwd").read_bytes()
    process = sandbox.process("refuse-namespaces")
    insert(process.dsn, 1)
    postmaster = state_of(sandbox.home).postmaster
    assert user_namespace(postmaster) == user_namespace("self")
    [owner] = owners_below(sandbox.home)
    assert owner != 0
    assert effective_uid(postmaster) == owner
    assert f"\t{owner}\t" in Path(f"/proc/{postmaster}/status").read_text()
    assert stat.S_IMODE((sandbox.home / "socket").stat().st_mode) == 0o700
    assert permissions_of_parents(sandbox.home) == parents
    assert Path("/etc/passwd").read_bytes() == accounts
    # And once it is theirs it stays so, namespaces or not.
    process.leave()
    await_stopped(sandbox.home)
    again = sandbox.process()
    assert values(again.dsn) == [1]
    assert effective_uid(state_of(sandbox.home).postmaster) == owner


@needs_namespaces
def test_data_made_in_a_namespace_goes_to_the_account_when_namespaces_are_refused_later(sandbox: Sandbox) -> None:
    before = sandbox.furnish().process()
    insert(before.dsn, 1)
    before.leave()
    await_stopped(sandbox.home)
    assert owners_below(sandbox.home) == {0}
    after = sandbox.process("refuse-namespaces")
    assert values(after.dsn) == [1]
    assert 0 not in owners_below(sandbox.home)


def test_an_account_that_cannot_get_there_is_refused_and_given_nothing(sandbox: Sandbox) -> None:
    closed = sandbox.directory / "closed"
    closed.mkdir(mode=0o700)
    home = closed / "home"
    error = sandbox.process("refuse-namespaces", home=home).error
    assert "cannot reach" in error
    assert "TARRY_HOME" in error
    assert any(repr(account) in error for account in ACCOUNTS)
    assert owners_below(home) == {0}
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_an_ordinary_user_runs_it_as_themselves(sandbox: Sandbox) -> None:
    sandbox.hand_to(ORDINARY_UID)
    process = sandbox.process(uid=ORDINARY_UID)
    insert(process.dsn, 1)
    postmaster = state_of(sandbox.home).postmaster
    assert user_namespace(postmaster) == user_namespace("self")
    assert effective_uid(postmaster) == ORDINARY_UID
    assert owners_below(sandbox.home) == {ORDINARY_UID}
    assert stat.S_IMODE((sandbox.home / "socket").stat().st_mode) == 0o700
    process.kill()
    await_stopped(sandbox.home)
    assert values(sandbox.process(uid=ORDINARY_UID).dsn) == [1]


def test_root_serves_the_directory_of_an_ordinary_user_as_that_user(sandbox: Sandbox) -> None:
    sandbox.hand_to(ORDINARY_UID)
    sandbox.home.mkdir(mode=0o700)
    os.chown(sandbox.home, ORDINARY_UID, ORDINARY_UID)
    root = sandbox.process()
    insert(root.dsn, 1)
    assert effective_uid(state_of(sandbox.home).postmaster) == ORDINARY_UID
    assert owners_below(sandbox.home) == {ORDINARY_UID}
    ordinary = sandbox.process(uid=ORDINARY_UID)
    assert ordinary.dsn == root.dsn
    root.leave()
    assert values(ordinary.dsn) == [1]


@needs_namespaces
def test_a_user_without_a_name_can_run_it_too(sandbox: Sandbox) -> None:
    sandbox.hand_to(NAMELESS)
    insert(sandbox.process(uid=NAMELESS).dsn, 1)
    assert owners_below(sandbox.home) == {NAMELESS}


def test_a_user_without_a_name_gets_the_reason_where_namespaces_are_refused(sandbox: Sandbox) -> None:
    sandbox.hand_to(NAMELESS)
    assert "no entry in /etc/passwd" in sandbox.process("refuse-namespaces", uid=NAMELESS).error


def test_the_server_of_another_user_is_not_used(sandbox: Sandbox) -> None:
    owner = sandbox.furnish().process()
    assert owner.dsn
    error = sandbox.process(uid=ORDINARY_UID).error
    assert "belongs to uid 0" in error
    assert "TARRY_HOME" in error


def test_a_place_that_may_not_be_written_to_is_named(sandbox: Sandbox) -> None:
    error = sandbox.process(uid=ORDINARY_UID).error
    assert str(sandbox.home) in error
    assert "Permission denied" in error
    assert "TARRY_HOME" in error


def test_binaries_that_the_account_may_not_execute_are_named(sandbox: Sandbox) -> None:
    hidden = sandbox.directory / "bin"
    hidden.mkdir()
    for name in ("postgres", "initdb"):
        (hidden / name).write_text("#!/bin/sh\necho postgres 18\n")
        (hidden / name).chmod(0o700)
    error = sandbox.process("refuse-namespaces", binaries=str(hidden)).error
    assert str(hidden / "postgres") in error
    assert "every account may read" in error
