"""How messages and places among them are named in a URL, so that no key can be mistaken for a path."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tarry.core import limits
from tarry.core.cron import check_prefix
from tarry.core.errors import InvalidInput
from tarry.core.messages import Place

_ID = re.compile(r"[A-Za-z0-9_-]{4,1300}")


class MessageId(NamedTuple):
    """`queue/key` in base64url without padding. A queue has no slash in its name, so the first one ends it."""

    queue: str
    key: str

    def __str__(self) -> str:
        return urlsafe_b64encode(f"{self.queue}/{self.key}".encode()).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> MessageId | None:
        """None for what no message can be called. Of the ways to write an id only ours is taken."""
        if not _ID.fullmatch(text):
            return None
        try:
            queue, slash, key = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition("/")
            found = cls(limits.check_queue_name(queue), limits.check_key(key))
        except (NotBase64, UnicodeDecodeError, InvalidInput):
            return None
        return found if slash and str(found) == text else None


_PLAIN = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,200}")


def show_prefix(prefix: str) -> str:
    """A schedule in a path: its prefix as it is, or `~` and base64url of whatever could be mistaken there."""
    return prefix if _PLAIN.fullmatch(prefix) else "~" + urlsafe_b64encode(prefix.encode()).rstrip(b"=").decode()


def parse_prefix(text: str) -> str | None:
    """None for what no schedule can be called. Of the ways to write one only ours is taken."""
    try:
        data = text[1:] if text.startswith("~") else None
        prefix = text if data is None else urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode()
        found = check_prefix(prefix)
    except (NotBase64, ValueError, InvalidInput):
        return None
    return found if show_prefix(found) == text else None


PLACE = r"^[0-9]{1,18}-[0-9]{1,19}$"
_EPOCH = datetime.min.replace(tzinfo=UTC)


def show_place(place: Place) -> str:
    return f"{(place.due_at - _EPOCH) // timedelta(microseconds=1)}-{place.version}"


def parse_place(text: str) -> Place:
    micros, _, version = text.partition("-")
    try:
        return Place(_EPOCH + timedelta(microseconds=int(micros)), min(int(version), 2**63 - 1))
    except OverflowError:
        raise InvalidInput("after: this is not the `next` of a page") from None


def storable(text: str | None, name: str) -> str | None:
    """Text of a query that is compared with what is stored, which has no NUL."""
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{name} must not contain NUL (U+0000)")
    return text
