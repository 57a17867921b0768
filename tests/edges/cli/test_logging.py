"""The log of long-running processes: one format for Tarry's loggers and the user's."""

from __future__ import annotations

import json
import logging

import pytest

from tarry.edges.cli.processes.log import log_to

pytestmark = pytest.mark.usefixtures("own_log")


def test_the_user_s_records_are_in_the_log_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    log_to(json_lines=False, quiet=False)
    logging.getLogger("tarry.worker").info("working on %s", "orders")
    logging.getLogger("shop.tasks").info("order %d is paid", 17)
    logging.getLogger("shop.tasks").debug("too much")
    first, second = capsys.readouterr().err.splitlines()
    assert first[8:] == " info    working on orders"
    assert second[8:] == " info    shop.tasks: order 17 is paid"


def test_json_has_the_logger_its_extra_fields_and_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log_to(json_lines=True, quiet=False)
    log_to(json_lines=True, quiet=False)
    try:
        raise ValueError("no such order")
    except ValueError:
        logging.getLogger("shop").exception("failed", extra={"order": 17, "level": "mine"})
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert (record["schema"], record["logger"], record["level"], record["message"]) == (
        "tarry.log/1",
        "shop",
        "error",
        "failed",
    )
    assert record["order"] == 17
    assert record["trace"].endswith("ValueError: no such order")


def test_json_has_no_password_of_a_connection_string_in_any_field(capsys: pytest.CaptureFixture[str]) -> None:
    class Connection:
        def __str__(self) -> str:
            return 'host=db password="se\\cret"'

    log_to(json_lines=True, quiet=False)
    url = "postgresql://shop:secret@db/shop"
    extra = {"dsn": url, "tried": [{"url": f'"{url}"', "ok": False}], "by": Connection(), "quoted": 'a "b" \\ c\n'}
    logging.getLogger("shop").info("connecting to %s", url, extra=extra)
    line = capsys.readouterr().out
    record = json.loads(line)
    assert "cret" not in line
    assert record["message"] == "connecting to postgresql://shop:***@db/shop"
    assert (record["dsn"], record["by"]) == ("postgresql://shop:***@db/shop", "host=db password=***")
    assert record["tried"] == [{"url": '"postgresql://shop:***@db/shop"', "ok": False}]
    assert record["quoted"] == 'a "b" \\ c\n'


def test_quiet_and_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    log_to(json_lines=False, quiet=True)
    logging.getLogger("shop").info("no")
    log_to(json_lines=False, quiet=False, verbose=True)
    logging.getLogger("tarry.worker").debug("yes")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["yes"]
