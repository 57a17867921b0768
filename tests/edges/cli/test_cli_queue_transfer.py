"""tarry queue export and import: through files and pipes, with counts, and with exit codes that scripts can distinguish."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tarry.app import App
from tests.edges.conftest import Run

Process = Callable[..., subprocess.Popen[bytes]]


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def everything(app: App, queue: str) -> list[Any]:
    return [
        (m.key, m.payload, m.content_type, m.due_at, m.priority, m.headers)
        for m in app.store.run(app.store.messages.list(queue))
    ]


def test_what_comes_out_goes_in_the_same(cli: Run, app: App, tmp_path: Path) -> None:
    orders = app.queue("orders")
    orders.offer("json", {"b": [1, 2.5, None], "a": 12345678901234567890123}, after=timedelta(hours=2), priority=7)
    orders.offer("text", "täxt\n", headers={"h": "v"}, after=timedelta(hours=1))
    orders.offer("bytes", b"\x00\xff")
    ran = cli("queue", "export", "orders")
    assert (ran.code, [line["key"] for line in ran.lines]) == (0, ["bytes", "text", "json"])
    assert "3 messages exported" in ran.err
    file = tmp_path / "orders.jsonl"
    file.write_text(ran.out)
    ran = cli("queue", "import", "copy", str(file))
    assert (ran.code, ran.fields["lines"], ran.fields["created"]) == (0, "3", "3")
    assert "was created" in ran.err
    assert everything(app, "copy") == everything(app, "orders")
    again = cli("queue", "import", "copy", "-o", "json", stdin=file.read_bytes())
    assert (again.code, again.data["ignored"], again.err) == (0, 3, "")


def test_bad_lines_are_reported_by_number_and_the_others_are_stored(cli: Run, app: App) -> None:
    body = lines({"key": "a", "payload": 1}) + b"{oops\n\n" + lines({"key": "b", "payload": 1, "x": 1}, {"payload": 2})
    ran = cli("queue", "import", "q", stdin=body.rstrip(b"\n"))
    assert ran.code == 6
    assert "line 2: not JSON" in ran.err
    assert "line 4: x: this field is not known" in ran.err
    assert (ran.fields["created"], ran.fields["refused"], ran.fields["blank"]) == ("2", "2", "1")
    data = cli("queue", "import", "q", "--json", stdin=body).data
    assert [problem["line"] for problem in data["problems"]] == [2, 4]
    assert (data["lines"], data["updated"], data["created"], data["refused"]) == (5, 1, 1, 2)


def test_stop_ends_at_the_first_bad_line_and_a_dry_run_stores_nothing(cli: Run, app: App) -> None:
    body = lines({"key": "a", "payload": 1}) + b"bad\n" + lines({"key": "b", "payload": 1})
    dry = cli("queue", "import", "q", "--dry-run", "--json", stdin=body)
    assert (dry.code, dry.data["fine"], dry.data["refused"]) == (7, 2, 1)
    assert app.queues.list() == []
    stopped = cli("queue", "import", "q", "--on-bad", "stop", "--json", stdin=body)
    assert (stopped.code, stopped.data["lines"], stopped.data["not_stored"]) == (6, 2, 1)
    assert app.queues.counts("q").ready.n == 0


def test_what_cannot_begin_changes_nothing(cli: Run) -> None:
    assert cli("queue", "export", "nowhere").code == 3
    assert cli("queue", "import", "q", "/nowhere/to/be/found").code == 2
    assert cli("queue", "import", "q", "--on-bad", "explode").code == 2
    assert cli("queue", "import", "a b", stdin=b"").code == 2
    assert cli("queue", "list", "--json").data["queues"] == []


def test_a_pipe_from_one_to_the_other_and_one_that_closes_early(process: Process, app: App) -> None:
    body = lines(*({"key": f"{i:04}", "payload": "x" * 2_000} for i in range(1_200)))
    first = process("queue", "import", "a", "-q", stdin=subprocess.PIPE)
    assert first.communicate(body, timeout=90)[1] == b""
    exporting = process("queue", "export", "a", "-q")
    importing = process("queue", "import", "b", "--json", stdin=exporting.stdout)
    out, _ = importing.communicate(timeout=90)
    assert (importing.returncode, exporting.wait(90)) == (0, 0)
    assert json.loads(out)["created"] == 1_200
    left = process("queue", "export", "a", "-q")
    assert left.stdout is not None
    left.stdout.readline()
    left.stdout.close()
    assert left.wait(90) == 0
    assert left.stderr is not None
    assert left.stderr.read() == b""
