"""A PostgreSQL that the driver of JDBC can reach: the embedded one, given a loopback address for this run."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.server import BUILD, Server, await_stop, running_server, tuned

ADDRESS = f"127.{83 + os.getpid() // 62_500 % 100}.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"
"""One of the loopback network for this run alone: the port is the usual one, and others may have it at 127.0.0.1."""

_OPEN_WITHIN_S = 10.0


@contextmanager
def on_tcp(dsn: str | None) -> Generator[Server]:
    """The embedded server promises to listen to a socket only. Its program is given one more setting: the last one wins."""
    if dsn is not None:
        with running_server(dsn) as server:
            yield server
        return
    from tarry.storage.postgres.embedded import EmbeddedSettings, start
    from tarry.storage.postgres.embedded.home import find_binaries

    BUILD.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=BUILD))
    directory.chmod(0o755)
    try:
        programs = _programs(directory, find_binaries("18", "").folder)
        with start(EmbeddedSettings(data_dir=directory / "home", binaries=str(programs))) as embedded:
            server = Server(_opened(embedded.dsn, directory / "home" / "pgdata"), own=True)
            try:
                tuned(server)
                yield server
            finally:
                server.close()
        await_stop(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _programs(directory: Path, real: Path) -> Path:
    folder = directory / "bin"
    folder.mkdir(mode=0o755)
    for name, more in (("postgres", f'[ "$1" = -D ] && set -- "$@" -c listen_addresses={ADDRESS}\n'), ("initdb", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\n{more}exec "{real}/{name}" "$@"\n')
        program.chmod(0o755)
    return folder


def _opened(dsn: str, pgdata: Path) -> str:
    """Access by a password that is generated now: other accounts of this machine can reach the address too."""
    password = secrets.token_hex(16)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("alter role current_user password {}").format(password))
        with (pgdata / "pg_hba.conf").open("a") as access:
            access.write("host all all 127.0.0.0/8 scram-sha-256\n")
        conn.execute("select pg_reload_conf()")
    opened = make_conninfo(dsn, host=ADDRESS, password=password)
    _await_open(opened)
    return opened


def _await_open(dsn: str) -> None:
    """The server applies its rules shortly after the reload."""
    deadline = time.monotonic() + _OPEN_WITHIN_S
    while True:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
