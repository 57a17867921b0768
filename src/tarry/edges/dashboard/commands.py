"""The same thing in other tools: what a page shows or does, as curl, as a command and as Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode


class Commands(NamedTuple):
    curl: str | None = None
    cli: str | None = None
    python: str | None = None
    pytest: str | None = None
    """A fixture for a test."""


def curl(url: str, method: str = "GET", body: Mapping[str, Any] | None = None, query: Mapping[str, str] = {}) -> str:
    """A request to the API with the key of the environment."""
    target = f"{url}{'&' if '?' in url else '?'}{urlencode(query)}" if query else url
    parts = ["curl", *([] if method == "GET" else ["-X", method]), shlex.quote(target)]
    parts += ["-H", '"Authorization: Bearer $TARRY_KEY"']
    if body is not None:
        parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body, ensure_ascii=False))]
    return " ".join(parts)


def form(url: str, fields: Mapping[str, str]) -> str:
    """A form of the dashboard, for actions that the API does not have. With a key it needs no token of a page."""
    data = [word for field in fields.items() for word in ("--data-urlencode", shlex.quote("=".join(field)))]
    return " ".join(["curl", shlex.quote(url), "-H", '"Authorization: Bearer $TARRY_KEY"', *(data or ["-d", "''"])])


def query(pairs: Sequence[tuple[str, str]]) -> str:
    """The query of an address, with its question mark; names may be repeated."""
    return f"?{urlencode(pairs)}" if pairs else ""


def cli(*words: str) -> str:
    return shlex.join(["tarry", *words])


def python(*lines: str) -> str:
    """A program that runs as it is copied."""
    names = [
        name for name in ("datetime", "timedelta") if any(f"{name}(" in line or f"{name}." in line for line in lines)
    ]
    imports = [f"from datetime import {', '.join(names)}", ""] if names else []
    return "\n".join([*imports, "import tarry", "", "with tarry.connect() as app:", *(f"    {line}" for line in lines)])


def path(*parts: str) -> str:
    """A path whose parts may contain anything."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def message_path(queue: str, key: str) -> str:
    """The page of a message. A browser would resolve a key of dots as a folder."""
    is_dots = key in (".", "..")
    return f"{path('queues', queue, 'message')}?key={key}" if is_dots else path("queues", queue, "messages", key)
