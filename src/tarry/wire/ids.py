"""Message ids, schedule ids and list positions in URLs: no key can be mistaken for a path."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tarry.core import limits
from tarry.core.cron.model import check_schedule_name
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import MessagePosition

_ID = re.compile(r"[A-Za-z0-9_-]{4,1300}")
_PLAIN = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,200}")
POSITION = r"^[0-9]{1,18}-[0-9]{1,19}$"
_EPOCH = datetime.min.replace(tzinfo=UTC)


class MessageId(NamedTuple):
    """`queue/key` in base64url without padding. Queue names contain no slash, so the first slash separates the two."""

    queue: str
    key: str

    def __str__(self) -> str:
        return base64url(f"{self.queue}/{self.key}".encode())

    @classmethod
    def parse(cls, text: str) -> MessageId | None:
        """None for text that is not a message id, and for other encodings of an id."""
        if not _ID.fullmatch(text):
            return None
        try:
            queue, slash, key = base64url_data(text).decode().partition("/")
            id = cls(limits.check_queue_name(queue), limits.check_key(key))
        except (NotBase64, UnicodeDecodeError, InvalidInput):
            return None
        return id if slash and str(id) == text else None


def schedule_id(name: str) -> str:
    """A schedule in a path: its name, or `~` and base64url of a name with other characters than A-Z a-z 0-9 . _ -"""
    return name if _PLAIN.fullmatch(name) else "~" + base64url(name.encode())


def parse_schedule_id(text: str) -> str | None:
    """The name; None for text that is not a schedule id, and for other encodings of an id."""
    try:
        name = check_schedule_name(base64url_data(text[1:]).decode() if text.startswith("~") else text)
    except (NotBase64, ValueError, InvalidInput):
        return None
    return name if schedule_id(name) == text else None


def position_text(position: MessagePosition) -> str:
    return f"{(position.due_at - _EPOCH) // timedelta(microseconds=1)}-{position.version}"


def parse_position(text: str) -> MessagePosition:
    micros, _, version = text.partition("-")
    try:
        return MessagePosition(_EPOCH + timedelta(microseconds=int(micros)), min(int(version), 2**63 - 1))
    except (ValueError, OverflowError):
        raise InvalidInput("after: this is not the `next` of a page") from None


def storable(text: str | None, name: str) -> str | None:
    """Check query text that is compared with stored text, which contains no NUL."""
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{name} must not contain NUL (U+0000)")
    return text


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def base64url_data(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
