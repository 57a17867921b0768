"""A real PgBouncer in transaction mode, in front of a server of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
PORT = "6432"
TIMEOUT_S = 30.0
# It refuses to be root, and our servers accept only the account that started them: in a namespace of its own it sees
# another number for the same account.
_NOT_ROOT = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
_CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {room}
auth_type = trust
auth_file = {room}/users
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
server_lifetime = 3600
server_login_retry = 0.2
log_connections = 0
log_disconnections = 0
"""


def _command() -> list[str]:
    if not Path(PROGRAM).exists():
        pytest.skip("pgbouncer is not installed (make system-packages)")
    if os.geteuid() != 0:
        return [PROGRAM]
    if shutil.which("unshare") is None or subprocess.run([*_NOT_ROOT, "true"], check=False).returncode != 0:
        pytest.skip("pgbouncer refuses to run as root, and user namespaces are refused here")
    return [*_NOT_ROOT, PROGRAM]


@contextmanager
def pgbouncer(dsn: str, *, pool_size: int = 2) -> Generator[str]:
    """Gives the address of the same database, through the pooler."""
    command = _command()
    behind = conninfo_to_dict(dsn)
    directory = Path(tempfile.mkdtemp(prefix="tarry-pool-", dir="/tmp"))
    try:
        (directory / "users").write_text(f'"{behind["user"]}" ""\n')
        values = {"host": behind["host"], "port": behind["port"], "own_port": PORT, "room": directory}
        (directory / "pgbouncer.ini").write_text(_CONFIGURATION.format(**values, pool_size=pool_size))
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen([*command, str(directory / "pgbouncer.ini")], stdout=log, stderr=log)
        try:
            through = make_conninfo(dsn, host=str(directory), port=PORT)
            _await_ready(process, through, directory / "log")
            yield through
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _await_ready(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            assert process.poll() is None, f"pgbouncer ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"pgbouncer does not answer: {log.read_text()}"
            time.sleep(0.02)
        else:
            return
