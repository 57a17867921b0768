"""Decodes stored payloads. An undecodable payload is returned as bytes: reading must not fail."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast, overload

from tarry.core.codecs import Codec
from tarry.core.messages import DeadLetter, StoredMessage

P = TypeVar("P")


@overload
def decoded(found: StoredMessage[bytes] | None, codec: Codec[P]) -> StoredMessage[P] | None: ...
@overload
def decoded(found: DeadLetter[bytes], codec: Codec[P]) -> DeadLetter[P]: ...
def decoded(found: StoredMessage[bytes] | DeadLetter[bytes] | None, codec: Codec[P]) -> Any:
    if found is None:
        return None
    try:
        payload: Any = codec.decode(found.payload, found.content_type)
    except ValueError:
        payload = found.payload
    return cast("Any", dataclasses.replace(found, payload=payload))
