"""Payloads on the wire: JSON as JSON, text as a string, anything else in base64. Stored in the library's form."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any, NamedTuple

import msgspec

from tarry.core.codecs import PLAIN, TEXT, Codec
from tarry.core.errors import InvalidPayload

JSON_TYPE = "application/json"
"""The content type on the wire of payloads that are stored without one."""
_CHECK = msgspec.json.Decoder()
_SCAN = msgspec.json.Decoder(msgspec.Raw)
_FORMS = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE = (b"0e000", b"0" * 200)
"""Exponents of three digits or more, and so many digits that a smaller exponent is enough (a float ends at 1.8e308)."""


class Content(NamedTuple):
    data: bytes
    content_type: str | None

    @classmethod
    def of_value(cls, value: Any) -> Content:
        return cls(*PLAIN.encode(value))

    @classmethod
    def of_base64(cls, text: str, content_type: str) -> Content:
        try:
            data = b64decode(text, validate=True)
        except (NotBase64, ValueError) as error:
            raise InvalidPayload(f"payload_base64 is not base64: {error}") from error
        return cls(data, None if content_type == JSON_TYPE else content_type)

    def shown(self) -> dict[str, Any]:
        """The fields of a response. Stored JSON is passed through unchanged after validation."""
        shown_type = self.content_type or JSON_TYPE
        if shown_type == JSON_TYPE and _is_json(self.data):
            return {"payload": msgspec.Raw(self.data), "content_type": shown_type}
        if self.content_type == TEXT:
            try:
                return {"payload": self.data.decode(), "content_type": shown_type}
            except UnicodeDecodeError:
                pass
        return {"payload_base64": b64encode(self.data).decode(), "content_type": shown_type}

    def offered(self) -> dict[str, Any]:
        """The fields of an offer that would be stored as exactly these bytes."""
        if self.content_type is None and _is_json(self.data) and Content.of_value(_CHECK.decode(self.data)) == self:
            return {"payload": msgspec.Raw(self.data)}
        shown = self.shown()
        if self.content_type == TEXT and "payload" in shown:
            return {"payload": shown["payload"]}
        return {"payload_base64": b64encode(self.data).decode(), "content_type": self.content_type or JSON_TYPE}


def _is_json(data: bytes) -> bool:
    """Whether clients can decode it. Builds no objects, except where a number may be too large for a float or an int."""
    try:
        data.decode()  # the scan for a raw value does not check the encoding
        forms = data.translate(_FORMS, b"+")  # ten times as fast as a regular expression
        (_CHECK if any(form in forms for form in _LARGE) else _SCAN).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _encode(content: Content) -> tuple[bytes, str | None]:
    return content.data, content.content_type


CONTENT: Codec[Content] = Codec(_encode, Content)
"""The codec of the broker's queues: the broker transports payloads without decoding them."""
