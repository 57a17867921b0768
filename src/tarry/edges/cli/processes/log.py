"""The log of long-running processes, for all loggers: text on stderr, or JSON lines on stdout."""

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any

from tarry.edges.cli.output.text import safe_json, shown
from tarry.edges.formats import exact
from tarry.edges.secrets import without_secrets

_ORDINARY = {*vars(logging.makeLogRecord({})), "message", "asctime", "fields"}
"""Attributes that every record has; any other was given as `extra`."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
"""A JSON string, at any depth."""


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        origin = "" if record.name.partition(".")[0] == "tarry" else f"{record.name}: "
        text = shown(without_secrets(f"{origin}{record.getMessage()}"))
        line = f"{at:%H:%M:%S} {record.levelname.lower():<7} {text}"
        return line if record.exc_info is None else f"{line}\n{_trace(self, record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "schema": "tarry.log/1",
            "at": exact(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        data = {name: value for name, value in vars(record).items() if name not in _ORDINARY} | data
        if record.exc_info is not None:
            data["trace"] = _trace(self, record)

        def hide(string: re.Match[str]) -> str:
            return json.dumps(without_secrets(json.loads(string[0])), ensure_ascii=False)

        return safe_json(_STRING.sub(hide, json.dumps(data, ensure_ascii=False, default=str)))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    return "\n".join(map(shown, without_secrets(text).split("\n")))


def log_to(*, json_lines: bool, quiet: bool, verbose: bool = False) -> None:
    """Send the records of every logger, including user modules, to one handler. `verbose`: Tarry's loggers at DEBUG."""
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stdout if json_lines else sys.stderr)
    handler.name = "tarry"
    handler.setFormatter(_Json() if json_lines else _Lines())
    root.handlers[:] = [*(other for other in root.handlers if other.name != "tarry"), handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("psycopg").propagate = False  # its pool logs every attempt to connect
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("tarry").setLevel(logging.DEBUG if verbose else logging.NOTSET)
