"""Static files with their hashes: cached by browsers for as long as they do not change, and verified by them."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "json": "application/json"}


class Asset(NamedTuple):
    content: bytes
    media_type: str
    integrity: str
    version: str
    """A part of the hash, for the query of its address."""


@cache
def assets() -> dict[str, Asset]:
    """All static files of the package, by path."""
    return dict(_read(files("tarry.edges.dashboard").joinpath("static"), ""))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    result: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            result += _read(entry, f"{prefix}{entry.name}/")
            continue
        content = entry.read_bytes()
        digest = hashlib.sha384(content).digest()
        kind = _TYPES.get(entry.name.rpartition(".")[2], "application/octet-stream")
        integrity = f"sha384-{base64.b64encode(digest).decode()}"
        result.append((f"{prefix}{entry.name}", Asset(content, kind, integrity, digest.hex()[:12])))
    return result
