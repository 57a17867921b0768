"""The fixtures that Tarry gives to tests of others, in a run of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from psycopg.conninfo import make_conninfo

from tests.kit.servers import Server

TESTS = """
from datetime import timedelta

import psycopg
import tarry
from tarry.testing import drain, drain_async


def test_memory(tarry_app, tarry_clock):
    tarry_app.queue("orders").offer("a", 1, after=timedelta(days=1))
    assert tarry_app.queue("orders").try_poll() is None
    tarry_clock.advance(timedelta(days=1))
    assert tarry_app.queue("orders").try_poll().key == "a"


def test_async(tarry_async_app, tarry_app):
    import asyncio

    tarry_app.queue("orders").offer("a", 1)
    assert asyncio.run(tarry_async_app.queue("orders").contains("a"))


def test_an_ack_in_the_transaction_of_the_effect(tarry_postgres_app, tarry_dsn, tarry_clock):
    worker = tarry.Worker()

    @worker.handler("orders")
    def pay(order: dict, delivery: tarry.Delivery) -> None:
        with psycopg.connect(tarry_dsn) as conn:
            conn.execute("create table paid as select 17 as number")
            delivery.ack(conn=conn)

    tarry_postgres_app.queue("orders").offer("a", {}, after=timedelta(hours=1))
    assert drain(worker, tarry_postgres_app) == []
    tarry_clock.advance(timedelta(hours=1))
    assert [handled.result.value for handled in drain(worker, tarry_postgres_app)] == ["settled"]
    with psycopg.connect(tarry_dsn) as conn:
        assert conn.execute("select number from paid").fetchall() == [(17,)]
        assert conn.execute("show application_name").fetchone() == ("my shop",)  # as the address of the server has it


def test_a_database_of_its_own(tarry_postgres_app):
    assert tarry_postgres_app.queues.list() == []
"""


def test_each_fixture_works_for_a_user(tmp_path: Path, server: Server) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    address = make_conninfo(server.shared, application_name="my shop")
    own = f"import pytest\n\n\n@pytest.fixture(scope='session')\ndef tarry_server():\n    return {address!r}\n"
    (tmp_path / "conftest.py").write_text(own)
    plugin = [] if entry_points(group="pytest11", name="tarry") else ["-p", "tarry.pytest_plugin"]
    options = ["-q", "-W", "error", "-p", "no:randomly", "-p", "no:cacheprovider", *plugin]
    command = [sys.executable, "-m", "pytest", *options, "test_shop.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
