"""API keys, browser sessions and the audit log."""

from typing import Annotated, Literal

from msgspec import Meta, field

from tarry.core import limits
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import Audited
from tarry.wire.base import At, Duration, Request, Response, read_line

Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,100}\*?$", min_length=1), read_line]


class KeyRequest(Request):
    name: Annotated[str, Meta(min_length=1, max_length=limits.TYPE_LENGTH)]
    actions: Annotated[list[Literal["read", "produce", "consume", "admin"]], Meta(min_length=1, max_length=4)]
    queues: Annotated[list[Pattern], Meta(min_length=1, max_length=100)] = field(default_factory=lambda: ["*"])
    expires_for: Duration | None = None


class Keys(Response):
    keys: list[Annotated[ApiKey, Meta(title="Key")]]


class Audit(Response):
    audit: list[Annotated[Audited, Meta(title="AuditRow")]]
    next: Annotated[int | None, Meta(description="Give it as `before` for the page after this; null on the last.")]


class Session(Response):
    until: Annotated[At | None, Meta(description="null: this broker needs no session.")]
