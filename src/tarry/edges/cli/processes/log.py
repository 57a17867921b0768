"""Log of long-running processes: text on stderr, or JSON lines on stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

from tarry.edges.cli.output.text import safe_json, shown
from tarry.edges.formats import exact
from tarry.edges.secrets import without_secrets


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = f"{at:%H:%M:%S} {record.levelname.lower():<7} {shown(without_secrets(record.getMessage()))}"
        return line if record.exc_info is None else f"{line}\n{_trace(self, record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        data = {
            "schema": "tarry.worker.log/1",
            "at": exact(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "pid": os.getpid(),
            "message": without_secrets(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info is not None:
            data["trace"] = _trace(self, record)
        return safe_json(json.dumps(data, ensure_ascii=False))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return _escaped(formatter.formatException(record.exc_info) if record.exc_info else "")


def _escaped(text: str) -> str:
    return "\n".join(map(shown, without_secrets(text).split("\n")))


def log_to(*, json_lines: bool, quiet: bool, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stdout if json_lines else sys.stderr)
    handler.setFormatter(_Json() if json_lines else _Lines())
    log = logging.getLogger("tarry")
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    log.propagate = False


class _Broker(logging.Formatter):
    """Errors may quote what clients sent."""

    def format(self, record: logging.LogRecord) -> str:
        return _escaped(super().format(record))


def log_broker(access_level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Broker("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name in ("tarry", "uvicorn"):
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("tarry.http.access").setLevel(access_level)
