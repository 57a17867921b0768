"""API keys, browser sessions and the audit log."""

from typing import Annotated, Any, Literal, Self

from msgspec import Meta, field

from tarry.core import limits
from tarry.core.security import api_keys
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import Audited
from tarry.wire.base import At, Duration, Read, Request, Response, read_line

Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,100}\*?$", min_length=1), Read(read_line)]


class KeyRequest(Request):
    name: Annotated[str, Meta(min_length=1, max_length=limits.TYPE_LENGTH)]
    actions: Annotated[list[Literal["read", "produce", "consume", "admin"]], Meta(min_length=1, max_length=4)]
    queues: Annotated[list[Pattern], Meta(min_length=1, max_length=100)] = field(default_factory=lambda: ["*"])
    expires_for: Duration | None = None


class Key(Response):
    id: str
    name: str
    actions: list[str]
    queues: list[str]
    active: bool
    created_at: At
    expires_at: At | None
    revoked_at: At | None

    @classmethod
    def of(cls, value: ApiKey, /, **fields: Any) -> Self:
        return super().of(value, actions=sorted(value.actions), **fields)

    def core(self) -> ApiKey:
        return self.as_core(ApiKey, secret_hash=b"")  # never leaves the database


class IssuedKey(Key):
    key: Annotated[str, Meta(description="Shown this once.")]

    @classmethod
    def of_issued(cls, issued: api_keys.IssuedKey) -> Self:
        return cls.of(issued.key, key=issued.text)


class Keys(Response):
    keys: list[Key]


class Audit(Response):
    audit: list[Annotated[Audited, Meta(title="AuditRow")]]
    next: Annotated[int | None, Meta(description="Give it as `before` for the page after this; null on the last.")]


class Session(Response):
    until: Annotated[At | None, Meta(description="null: this broker needs no session.")]
