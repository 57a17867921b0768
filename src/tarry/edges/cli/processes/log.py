"""What a worker says while it works: lines for people on stderr, or JSON lines for programs on stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

from tarry.edges.cli.text import safe_json, shown, without_secrets
from tarry.edges.times import exact


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = f"{at:%H:%M:%S} {record.levelname.lower():<7} {shown(without_secrets(record.getMessage()))}"
        return line if record.exc_info is None else f"{line}\n{_trace(self, record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "schema": "tarry.worker.log/1",
            "at": exact(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "pid": os.getpid(),
            "message": without_secrets(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info is not None:
            told["trace"] = _trace(self, record)
        return safe_json(json.dumps(told, ensure_ascii=False))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    return "\n".join(map(shown, without_secrets(text).split("\n")))


def log_to(*, json_lines: bool, quiet: bool, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stdout if json_lines else sys.stderr)
    handler.setFormatter(_Json() if json_lines else _Lines())
    log = logging.getLogger("tarry")
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    log.propagate = False
