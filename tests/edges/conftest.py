"""The command line as tests use it: in this process for its output, as a process of its own for its behaviour."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tarry
from tarry.app import App
from tarry.edges.cli.main import main
from tests.kit.servers import Server

TARRY = [sys.executable, "-m", "tarry"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The one JSON object that an error is in JSON mode."""
        return json.loads(self.err)

    @property
    def fields(self) -> dict[str, str]:
        """A record as people see it: a name and a value on each line."""
        pairs = (line.partition("  ") for line in self.out.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}


Run = Callable[..., Ran]


@pytest.fixture
def own_log() -> Iterator[None]:
    """What a command does to the log ends with the test: it would write into what is closed by then."""
    logs = [logging.getLogger(name) for name in (None, "tarry", "tarry.http.access", "uvicorn", "psycopg")]
    before = [(list(log.handlers), log.propagate, log.level) for log in logs]
    yield
    for log, (handlers, propagate, level) in zip(logs, before, strict=True):
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


@pytest.fixture
def run(own_log: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in this process, with whatever database its arguments name."""

    def run(*args: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(args)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def cli(run: Run, database: str) -> Run:
    """A command on a fresh database."""

    def on_database(*args: str, stdin: bytes = b"") -> Ran:
        return run("--dsn", database, *args, stdin=stdin)

    return on_database


@pytest.fixture
def refusing(run: Run, server: Server) -> Run:
    """A command that is to change nothing, on the database that tests share."""

    def on_shared(*args: str, stdin: bytes = b"") -> Ran:
        before = run("--dsn", server.shared, "queue", "list", "--json").data["queues"]
        ran = run("--dsn", server.shared, *args, stdin=stdin)
        assert run("--dsn", server.shared, "queue", "list", "--json").data["queues"] == before
        return ran

    return on_shared


@pytest.fixture
def app(database: str) -> Iterator[App]:
    """The library on the same database, to arrange what a command will find and to see what it left."""
    with tarry.connect(database) as app:
        yield app


@pytest.fixture
def process(database: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A command as a process of its own, on a fresh database."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TARRY_DSN": database, "TERM": "xterm", "COLUMNS": "120", **(env or {})}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = subprocess.Popen[bytes]([*TARRY, *args], env=environment, cwd=tmp_path, **options)
        started.append(command)
        return command

    yield start
    for command in started:
        if command.poll() is None:
            command.kill()
        command.wait()
        for stream in (command.stdin, command.stdout, command.stderr):
            if stream is not None:
                stream.close()
