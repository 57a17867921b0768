"""On a real terminal, through real pipes, under real signals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tarry.app import App
from tests.edges.conftest import Run

Process = Callable[..., "subprocess.Popen[bytes]"]

HOSTILE = [
    "emoji 🚀👩‍💻",
    "quotes ' \" ` $(id)",
    "lines\nand\rreturns\tand tabs",
    "colours \x1b[31mred\x1b[2J\x1b]0;title\x07",
    "one byte \x9b31m csi",
    "markup [red]x[/red] :rocket:",
    "backwards \u202etxt.exe",
    "back\\slash \\n",
    "\x7f\x08\x00"[:2],
    "日本語",
]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a pseudo terminal, and what a person would see and type."""

    def __init__(self, process: Process, *args: str, env: dict[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        self._process = process(*args, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            self.seen += self._read() or pytest.fail(f"{text!r} was never printed: {self.seen!r}")

    def type_line(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        while more := self._read():
            self.seen += more
        os.close(self._ours)
        return self._process.wait()

    def _read(self) -> str:
        try:
            return os.read(self._ours, 65_536).decode()
        except OSError:  # the error of Linux when the other side is closed
            return ""


def test_a_terminal_gets_boxes_and_colours(process: Process, app: App) -> None:
    app.queues.create("orders")
    terminal = Terminal(process, "queue", "list")
    assert terminal.end() == 0
    assert "─" in terminal.seen
    assert "\x1b[32mrunning" in terminal.seen


@pytest.mark.parametrize("how", ["NO_COLOR", "--no-color", "TERM"])
def test_colours_are_left_out_where_they_are_not_wanted(process: Process, app: App, how: str) -> None:
    app.queues.create("orders")
    env = {"NO_COLOR": "1"} if how == "NO_COLOR" else {"TERM": "dumb"} if how == "TERM" else {}
    for command in (["queue", "list"], ["queue", "show", "orders"]):
        terminal = Terminal(process, *command, *([how] if how.startswith("-") else []), env=env)
        assert terminal.end() == 0
        assert "running" in terminal.seen
        assert "\x1b" not in terminal.seen


def test_a_terminal_of_80_columns_gets_a_table_without_what_can_be_spared(process: Process, app: App) -> None:
    app.queues.create("orders")
    app.queue("orders").offer("order-17", {"total": 40}, after=timedelta(hours=1))
    for command, spared in ((["queue", "list"], "journal"), (["message", "list", "orders"], "version")):
        terminal = Terminal(process, *command, env={"COLUMNS": "80", "NO_COLOR": "1"})
        assert terminal.end() == 0
        head = terminal.seen.splitlines()[0]
        assert {"queue list": "delayed", "message list orders": "payload"}[" ".join(command)] in head.split()
        assert spared not in head
        assert max(map(len, terminal.seen.splitlines())) <= 80


def test_a_narrow_terminal_gets_one_below_the_other_and_no_word_is_broken(process: Process, app: App) -> None:
    for name in ("orders", "invoices"):
        app.queues.create(name)
    terminal = Terminal(process, "queue", "list", env={"COLUMNS": "40", "NO_COLOR": "1"})
    assert terminal.end() == 0
    first, second = terminal.seen.replace("\r", "").strip().split("\n\n")
    assert [dict(line.split(maxsplit=1) for line in block.splitlines()) for block in (first, second)] == [
        {
            "queue": name, "delayed": "0", "ready": "0", "leased": "0", "dead": "0", "state": "running", "lease": "30s",
            "attempts": "unlimited", "retry": "1s x2 up to 10m", "journal": "events",
        }
        for name in ("invoices", "orders")
    ]  # fmt: skip


def test_a_pipe_gets_neither_boxes_nor_colours(process: Process, app: App) -> None:
    app.queues.create("orders")
    out, err = process("queue", "list").communicate()
    assert b"orders" in out
    assert out.isascii()
    assert b"\x1b" not in out + err


@pytest.mark.parametrize("key", HOSTILE, ids=ascii)
def test_a_key_cannot_act_on_a_terminal(cli: Run, app: App, key: str) -> None:
    app.queue("orders").offer(key, key, type=key[:100], headers={key: key})
    app.queue("orders").offer("other", 1, after=timedelta(hours=1))
    commands = [
        ["message", "list", "orders"],
        ["message", "show", "orders", key],
        ["message", "timeline", "orders", key],
    ]
    for command in commands:
        ran = cli(*command)
        assert ran.code == 0
        for char in ran.out + ran.err:
            assert char == "\n" or char.isprintable() or char == "\u200d", ascii(ran.out)
        exact = cli(*command, "--json")
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", exact.out)
    assert len(cli("message", "list", "orders").out.splitlines()) == 3
    (message,) = [m for m in cli("message", "list", "orders", "--json").data["messages"] if m["key"] != "other"]
    assert (message["key"], message["payload"], message["headers"]) == (key, key, {key: key})
    assert cli("message", "drop", "orders", key, "--yes", "--json").data["key"] == key
    assert not app.queue("orders").contains(key)


def test_an_export_cannot_act_on_a_terminal_and_is_imported_as_it_was(process: Process, cli: Run, app: App) -> None:
    orders = app.queue("orders")
    for key in HOSTILE:
        orders.offer(key, {key: key}, type=key[:100], headers={key: key}, at=datetime(2030, 1, 1, tzinfo=UTC))
    terminal = Terminal(process, "queue", "export", "orders", "--quiet")
    assert terminal.end() == 0
    piped, _ = process("queue", "export", "orders").communicate()
    assert terminal.seen.replace("\r\n", "\n") == piped.decode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", piped.decode())
    report = app.queues.import_lines("copy", piped.splitlines(keepends=True))
    assert report.created == len(HOSTILE)
    for key in HOSTILE:
        message: Any = app.queue("copy").read(key)
        assert (message.payload, message.type, message.headers) == ({key: key}, key[:100], {key: key})


def test_markup_in_a_key_is_shown_as_it_is(process: Process, app: App) -> None:
    app.queue("orders").offer("[red]x[/red] :rocket: [link=http://x]", 1)
    terminal = Terminal(process, "message", "list", "orders", env={"COLUMNS": "200"})
    assert terminal.end() == 0
    assert "[red]x[/red] :rocket: [link=http://x]" in ESCAPES.sub("", terminal.seen)


def test_a_hostile_key_in_an_error_is_shown_escaped(cli: Run, app: App) -> None:
    app.queues.create("orders")
    ran = cli("message", "show", "orders", "\x1b[2J\n[red]")
    assert ran.code == 3
    assert len(ran.err.splitlines()) == 2
    assert "\x1b" not in ran.err
    assert "[red]" in ran.err


def test_a_key_that_is_not_text_is_bad_input(process: Process, app: App) -> None:
    app.queues.create("orders")
    command = process("message", "show", "orders", os.fsdecode(b"\xff"))
    _, err = command.communicate()
    assert command.returncode == 2
    assert b"Traceback" not in err


def test_a_terminal_that_knows_ascii_only_is_no_obstacle(process: Process, app: App) -> None:
    app.queue("orders").offer("🚀", 1)
    command = process("message", "list", "orders", env={"PYTHONIOENCODING": "ascii"})
    out, _ = command.communicate()
    assert command.returncode == 0
    assert b"\\U0001f680" in out


def test_an_operator_may_decline_the_confirmation(process: Process, app: App) -> None:
    app.queue("orders").offer("a", 1)
    for reply, code in (("n", 1), ("", 1), ("y", 0)):
        assert app.queue("orders").contains("a")
        terminal = Terminal(process, "message", "drop", "orders", "a")
        terminal.read_until("[y/N]")
        terminal.type_line(reply)
        assert terminal.end() == code
        assert ("nothing was changed" in terminal.seen) is (code == 1)
    assert not app.queue("orders").contains("a")


def test_what_changed_while_a_person_thought_about_it_stays(process: Process, app: App) -> None:
    app.queue("orders").offer("a", 1)
    terminal = Terminal(process, "message", "drop", "orders", "a")
    terminal.read_until("[y/N]")
    app.queue("orders").offer("a", 2)
    terminal.type_line("y")
    assert terminal.end() == 4
    assert app.queue("orders").contains("a")


def test_a_purge_is_typed_out(process: Process, app: App) -> None:
    app.queue("orders").offer("a", 1)
    for name, code in (("order", 4), ("orders", 0)):
        terminal = Terminal(process, "queue", "purge", "orders")
        terminal.read_until("Type orders to continue")
        assert "1 ready" in terminal.seen
        terminal.type_line(name)
        assert terminal.end() == code
        assert app.queue("orders").contains("a") is (code == 4)


def test_a_reader_that_stops_early_leaves_no_mess(process: Process) -> None:
    command = process("db", "sql")
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    assert command.stderr.read() == b""
    assert command.wait() == 0


def test_what_a_reader_did_not_take_is_given_back(process: Process, app: App) -> None:
    for n in range(4):
        app.queue("orders").offer(f"k{n}", "x" * 200_000)  # more than a pipe holds
    command = process("poll", "orders", "--max", "4", "-o", "jsonl")
    assert command.stdout is not None
    assert command.stderr is not None
    assert b'"k0"' in command.stdout.readline() or pytest.fail(command.stderr.read().decode())
    command.stdout.close()
    assert command.wait() == 0
    counts = app.queues.counts("orders")
    assert (counts.ready.n, counts.leased.n) == (3, 0)
    delivery: Any = app.queue("orders").try_poll()
    assert (delivery.key, delivery.attempt) == ("k1", 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_could_not_be_written_is_given_back(process: Process, app: App) -> None:
    app.queue("orders").offer("a", 1)
    with Path("/dev/full").open("wb") as full:
        command = process("poll", "orders", stdout=full)
        assert command.wait() == 1
    assert command.stderr is not None
    assert command.stderr.read().startswith(b"error: ")
    delivery: Any = app.queue("orders").try_poll()
    assert (delivery.key, delivery.attempt) == ("a", 1)


def test_an_interrupted_wait_ends_with_130(process: Process, app: App) -> None:
    app.queues.create("orders")
    app.queues.pause("orders")
    command = process("poll", "orders", "--wait", "1h")
    assert command.stderr is not None
    assert b"paused" in command.stderr.readline()  # it is past its start, and about to wait
    command.send_signal(signal.SIGINT)
    assert command.stderr.read() == b"", "Ctrl-C is no error"
    assert command.wait() == 130


def test_a_redrive_shows_how_far_it_is_and_an_interrupt_leaves_the_job(process: Process, app: App) -> None:
    orders = app.queue("orders")
    for key in "abc":
        orders.offer(key, 1)
        delivery: Any = orders.try_poll()
        delivery.bury("broken")
    terminal = Terminal(process, "dlq", "redrive", "orders", "--canary", "1")
    terminal.read_until("Redrive 3 dead letters of queue orders (every dead letter)? [y/N]")
    terminal.type_line("y")
    terminal.read_until("1 canary redriven first")
    terminal.read_until("waiting for canaries")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "1/3" in terminal.seen
    assert "tarry redrive watch 1" in terminal.seen
    assert (app.redrives.get(1).job.state.value, app.redrives.get(1).job.redriven) == ("running", 1)


def test_a_sweeper_ends_cleanly_on_a_signal(process: Process, app: App) -> None:
    command = process("sweeper")
    assert command.stderr is not None
    assert command.stderr.readline() == b"this sweeper leads\n"
    command.send_signal(signal.SIGTERM)
    assert command.wait() == 0
    assert app.store.run(app.store.maintenance.leader("sweeper")) is None
