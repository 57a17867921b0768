"""Decodes stored payloads. An undecodable payload is returned as bytes: reading must not fail."""

import dataclasses
from typing import Any, TypeVar, cast, overload

from tarry.core.codecs import Codec
from tarry.core.messages.model import DeadLetter, StoredMessage

P = TypeVar("P")


@overload
def decoded(stored: StoredMessage[bytes] | None, codec: Codec[P]) -> StoredMessage[P] | None: ...
@overload
def decoded(stored: DeadLetter[bytes], codec: Codec[P]) -> DeadLetter[P]: ...
def decoded(stored: StoredMessage[bytes] | DeadLetter[bytes] | None, codec: Codec[P]) -> Any:
    if stored is None:
        return None
    try:
        payload: Any = codec.decode(stored.payload, stored.content_type)
    except ValueError:
        payload = stored.payload
    return cast("Any", dataclasses.replace(stored, payload=payload))
