"""Bodies of requests in the audit, limited in size."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any, cast

import msgspec
import pydantic_core
from pydantic import BaseModel, TypeAdapter

from tarry.core.errors import TarryError

AUDITED_BYTES = 4_096
_AUDITED_ITEMS = 100
_AUDITED_TEXT = 100
"""List items and text characters that the audit keeps of a body that is too long."""
_AUDITED_IDS = ("messageIds", "messages", "versions")
"""Fields with ids of deleted or moved messages. The audit keeps all of their items, at most 1,000."""
_AUDITED_ID = 200
"""The longest id that the audit keeps whole; of a longer id it keeps the beginning and a hash."""


def audited_body(body: bytes, model: Any = None) -> dict[str, Any]:
    """The body for the audit: unchanged if it is short, otherwise shortened, with its size and hash.

    White space, long texts and members that `model` (the route's body type) ignores must not push later fields out of the
    audit.
    """
    if len(body) <= AUDITED_BYTES:
        return {"body": body.decode(errors="replace")}
    ids: dict[str, Any] = {}
    try:
        parsed = pydantic_core.from_json(body)
        known = _known_fields(parsed, model)
        if known is not None:
            ids = _audited_ids(known)
            # Lists last: a long list must not push out short fields.
            parsed = dict(sorted(known.items(), key=lambda field: isinstance(field[1], list | dict)))
        shown = pydantic_core.to_json(_shortened(parsed))
    except ValueError:
        shown = body.strip()
    return {
        "body": shown[:AUDITED_BYTES].decode(errors="replace"),
        "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
        **ids,
    }


def _known_fields(parsed: Any, model: Any) -> dict[str, Any] | None:
    """The body fields that the model has. None if the body is invalid: the request is refused."""
    if model is None:
        return None
    try:
        valid = TypeAdapter[Any](model).validate_python(parsed)
    except (ValueError, TarryError):
        return None
    if isinstance(valid, BaseModel):
        return valid.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return parsed if isinstance(valid, msgspec.Struct) else None  # a struct has no other fields than these


def _audited_ids(known: dict[str, Any]) -> dict[str, Any]:
    """Remove the ids from the fields. Long ids are shortened and none is left out: one id cannot hide another."""
    items = [item for name in _AUDITED_IDS if isinstance(known.get(name), list) for item in known.pop(name)]
    ids = [cast("dict[str, Any]", item).get("id") if isinstance(item, dict) else item for item in items]
    return {"ids": [_audited_id(id) for id in ids]} if ids else {}


def _audited_id(id: Any) -> Any:
    if not isinstance(id, str) or len(id) <= _AUDITED_ID:
        return without_nul(id)
    return f"{without_nul(id[:_AUDITED_TEXT])}… (sha256 {hashlib.sha256(id.encode()).hexdigest()})"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return {_shortened(name): _shortened(inner) for name, inner in islice(fields, _AUDITED_ITEMS)}
    if isinstance(value, list):
        return [_shortened(inner) for inner in cast("list[Any]", value)[:_AUDITED_ITEMS]]
    if isinstance(value, str) and len(value) > _AUDITED_TEXT:
        return f"{value[:_AUDITED_TEXT]}… ({len(value):,} characters)"
    return value


def without_nul(value: Any) -> Any:
    if isinstance(value, dict):
        return {without_nul(name): without_nul(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return value.replace("\x00", "") if isinstance(value, str) else value
