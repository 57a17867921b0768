"""Payloads on the wire: JSON as JSON, text as a string, everything else as base64. Stored in the library's form."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tarry.core.codecs import BYTES, PLAIN, TEXT, Codec
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.wire.base import At, ContentType, Request, Response

T = TypeVar("T")

JSON_TYPE = "application/json"
"""The wire content type of payloads stored without one."""
_CHECK = msgspec.json.Decoder()
_SCAN = msgspec.json.Decoder(Raw)
_FORMS = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE = (b"0e000", b"0" * 200)
"""Exponents of three or more digits, and digit runs so long that a smaller exponent overflows a float (1.8e308)."""


class Content(NamedTuple):
    """Payload bytes and their content type; None is JSON."""

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
            return {"payload": Raw(self.data), "content_type": shown_type}
        if self.content_type == TEXT:
            try:
                return {"payload": self.data.decode(), "content_type": shown_type}
            except UnicodeDecodeError:
                pass
        return {"payload_base64": b64encode(self.data).decode(), "content_type": shown_type}

    def offered(self) -> dict[str, Any]:
        """The fields of an offer that is stored as exactly these bytes."""
        if self.content_type is None and _is_json(self.data) and Content.of_value(_CHECK.decode(self.data)) == self:
            return {"payload": Raw(self.data)}
        shown = self.shown()
        if self.content_type == TEXT and "payload" in shown:
            return {"payload": shown["payload"]}
        return {"payload_base64": b64encode(self.data).decode(), "content_type": self.content_type or JSON_TYPE}

    def sent(self) -> dict[str, Any]:
        """The request fields of a payload encoded by the library: `offered` without its checks."""
        if self.content_type is None and not self.data.startswith(b'"'):
            return {"payload": Raw(self.data)}
        # A JSON string would be stored as text, and bytes are not JSON.
        return {"payload_base64": b64encode(self.data).decode(), "content_type": self.content_type or JSON_TYPE}


def refuse_constant(name: str) -> Any:
    """`parse_constant` of `json.loads`: Python would accept NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")


def _is_json(data: bytes) -> bool:
    """Whether clients can decode the data. Creates objects only if a number may be too large for a float or an int."""
    try:
        data.decode()  # decoding a raw value does not check the encoding
        forms = data.translate(_FORMS, b"+")  # ten times faster than a regular expression
        (_CHECK if any(form in forms for form in _LARGE) else _SCAN).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


CONTENT: Codec[Content] = Codec(lambda content: content, Content)
"""The codec of the broker's queues: the broker transports payloads without decoding them."""


_ABSENT = Raw()


class WithPayload(Response):
    """A response that carries a payload."""

    content_type: str
    payload: Raw = _ABSENT
    payload_base64: str | None = None

    @classmethod
    def of(cls, value: Any, /, **fields: Any) -> Self:
        """The value's `payload` is a `Content`, or bytes with a separate `content_type`."""
        payload = value.payload
        content = payload if isinstance(payload, Content) else Content(payload, value.content_type)
        return super().of(value, **{"payload": _ABSENT, "payload_base64": None, **content.shown(), **fields})

    def core_with_content(self, kind: type[T]) -> T:
        data, content_type = self.content()
        return self.as_core(kind, payload=data, content_type=content_type)

    def content(self) -> Content:
        stored_type = None if self.content_type == JSON_TYPE else self.content_type
        if self.payload_base64 is not None:
            return Content(b64decode(self.payload_base64), stored_type)
        if self.content_type == TEXT:
            return Content(msgspec.json.decode(self.payload, type=str).encode(), stored_type)
        return Content(bytes(self.payload), stored_type)


class MessageFields(WithPayload, kw_only=True):
    """Fields of stored, leased and dead messages."""

    queue: str
    key: str
    version: int
    attempt: int
    priority: int
    type: str | None
    headers: dict[str, str] | None
    due_at: At


class PayloadRequest(Request):
    """A request that carries a payload: any JSON, or bytes with their content type."""

    payload: Any = UNSET
    payload_base64: str | UnsetType | None = UNSET
    content_type: ContentType | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if self.payload is not UNSET and isinstance(self.payload_base64, str):
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if isinstance(self.content_type, str) and not isinstance(self.payload_base64, str):
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")

    @property
    def has_payload(self) -> bool:
        return self.payload is not UNSET or isinstance(self.payload_base64, str)

    def content(self) -> Content:
        """The payload; null if the request has none."""
        if isinstance(self.payload_base64, str):
            content_type = self.content_type if isinstance(self.content_type, str) else BYTES
            return Content.of_base64(self.payload_base64, content_type)
        return Content.of_value(None if self.payload is UNSET else self.payload)
