"""Payloads between a command line and a queue. What is stored is carried as it is: the command line knows no types."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.edges.cli.text import shown

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.handles.queue import Queue


LARGEST_SOURCE = 16 * 1024 * 1024
"""No more is read: a file without an end must not fill the memory. JSON shrinks on its way in, so this is not the limit."""


class Raw(NamedTuple):
    """The bytes of a payload and what they are; None is JSON."""

    data: bytes
    content_type: str | None


def raw_queue(app: App, name: str) -> Queue[Raw]:
    """A queue whose payloads are never judged: what one cannot decode must be seen, not buried by looking."""
    from tarry.app import default_consumer
    from tarry.core.codecs import Codec
    from tarry.handles.queue import Queue

    return Queue(app.store, name, Codec(lambda raw: (raw.data, raw.content_type), Raw), consumer=default_consumer())


def read_payload(given: str | None, *, text: bool, binary: bool) -> Raw:
    """A payload argument: itself, `-` for stdin, `@file` for a file. JSON unless said otherwise; null if not given."""
    if text and binary:
        raise InvalidInput("give either --text or --bytes, not both")
    data = _source(given)
    if binary:
        from tarry.core.codecs import BYTES

        return Raw(data, BYTES)
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the payload is not UTF-8: {error}", hint="send it as it is: --bytes") from None
    if text:
        from tarry.core.codecs import TEXT

        return Raw(data, TEXT)
    return Raw(_canonical_json(decoded), None)


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
                hint="@ names a file; a text that begins with @ goes through stdin: send QUEUE - --text",
            ) from None
    return given.encode("utf-8", "surrogateescape")


def _read(source: BinaryIO) -> bytes:
    data = source.read(LARGEST_SOURCE + 1)
    if len(data) > LARGEST_SOURCE:
        raise InvalidPayload(
            f"the payload has more than {LARGEST_SOURCE:,} bytes", hint="keep it elsewhere, and send a reference to it"
        )
    return data


def _canonical_json(text: str) -> bytes:
    """The bytes that the library would store for the same value, so that offering it again changes nothing."""
    from tarry.core.codecs import PLAIN

    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(
            f"the payload is not JSON: {error}",
            hint="""quote it for the shell: '{"id": 17}'; or send it as text: --text""",
        ) from None
    # A JSON string is not a text: it keeps its quotes.
    data, _ = PLAIN.encode([value] if isinstance(value, str) else value)
    return data[1:-1] if isinstance(value, str) else data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def payload_fields(raw: Raw) -> dict[str, Any]:
    """For programs: the JSON value or the text itself; bytes as base64, under another name."""
    from tarry.core.codecs import PLAIN

    fields: dict[str, Any] = {"content_type": raw.content_type or "application/json"}
    try:
        value = PLAIN.decode(raw.data, raw.content_type)
    except InvalidPayload:
        value = raw.data
    if isinstance(value, bytes):
        return {**fields, "payload_base64": base64.b64encode(value).decode()}
    return {**fields, "payload": value}


def payload_line(raw: Raw) -> str:
    """For people, on one line, in full: whoever takes a message away has seen all of it."""
    if raw.content_type is None or raw.content_type.startswith(("text/", "application/json")):
        try:
            return shown(raw.data.decode())
        except UnicodeDecodeError:
            pass
    return f"base64:{base64.b64encode(raw.data).decode()}"
