"""Payloads as arguments and as output: raw bytes, without a payload type."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tarry.core.codecs import BYTES, PLAIN, TEXT
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.edges.cli.output.text import shown
from tarry.wire.payload import CONTENT, Content, refuse_constant

if TYPE_CHECKING:
    from tarry.api._sync.queue import Queue
    from tarry.app import App


LARGEST_SOURCE = 16 * 1024 * 1024
"""Limit for reading a file or stdin, which may be endless. Larger than the payload limit: JSON is stored without spaces."""


def raw_queue(app: App, name: str) -> Queue[Content]:
    """A queue that does not decode payloads: polling must not bury a message that cannot be decoded."""
    from tarry.api._sync.queue import Queue

    return Queue(app.store, name, CONTENT, consumer=app.consumer)


def read_payload(given: str | None, *, text: bool, binary: bool) -> Content:
    """Parse a payload argument: text, `-` for stdin, `@file` for a file; JSON by default; null if not given."""
    if text and binary:
        raise InvalidInput("give either --text or --bytes, not both")
    data = _source(given)
    if binary:
        return Content(data, BYTES)
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the payload is not UTF-8: {error}", hint="offer it as bytes: --bytes") from None
    return Content(data, TEXT) if text else Content(_canonical_json(decoded), None)


def _source(given: str | None) -> bytes:
    if given is None:
        return b"null"
    if given == "-":
        return _read(sys.stdin.buffer)
    if given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                return _read(file)
        except OSError as error:
            raise InvalidInput(
                f"the file {given[1:]!r} cannot be read: {error.strerror}",
                hint="@ names a file; offer text that begins with @ from stdin: tarry offer QUEUE - --text",
            ) from None
    return given.encode("utf-8", "surrogateescape")


def _read(source: BinaryIO) -> bytes:
    data = source.read(LARGEST_SOURCE + 1)
    if len(data) > LARGEST_SOURCE:
        raise InvalidPayload(
            f"the payload has more than {LARGEST_SOURCE:,} bytes",
            hint="store it elsewhere, and offer a reference to it",
        )
    return data


def _canonical_json(text: str) -> bytes:
    """The bytes that the library stores for the same value: an equal offer is then ignored."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(
            f"the payload is not JSON: {error}",
            hint="""quote it for the shell: '{"id": 17}'; or offer it as text: --text""",
        ) from None
    # A JSON string, unlike text, keeps its quotes.
    data, _ = PLAIN.encode([value] if isinstance(value, str) else value)
    return data[1:-1] if isinstance(value, str) else data


def payload_line(raw: Content) -> str:
    """The whole payload on one line."""
    if raw.content_type is None or raw.content_type.startswith(("text/", "application/json")):
        try:
            return shown(raw.data.decode())
        except UnicodeDecodeError:
            pass
    return f"base64:{base64.b64encode(raw.data).decode()}"
