"""The shapes of answers, for the OpenAPI document. `views` makes them; a test compares the two."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

At = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Token = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})]
Outcome = Literal["created", "updated", "ignored", "superseded"]
Settled = Literal["done", "lease_lost", "gone", "busy"]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProblemAnswer(BaseModel):
    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    request_id: str | None = None


class Offered(Answer):
    id: str
    key: str
    outcome: Outcome


class Edited(Answer):
    id: str
    key: str
    outcome: Literal["updated", "ignored"] = Field(description="ignored: it was so already.")


class OfferedBatch(Answer):
    messages: list[Offered]


class Delivery(Answer):
    id: str
    queue: str
    key: str
    version: int
    lock_token: Token
    attempt: int
    redelivered: bool
    priority: int
    type: str | None
    headers: dict[str, str] | None
    due_at: At
    leased_at: At
    lease_until: At
    content_type: str
    payload: Any = None
    payload_base64: str | None = None


class Deliveries(Answer):
    messages: list[Delivery]


class SettledAnswer(Answer):
    outcome: Settled


class Touched(SettledAnswer):
    lease_until: At | None = None


class SettledOne(SettledAnswer):
    id: str


class SettledBatch(Answer):
    messages: list[SettledOne]


class RetryPolicy(Answer):
    initial_for: float
    factor: float
    cap_for: float
    jitter: float


class Message(Answer):
    id: str
    queue: str
    key: str
    version: int
    state: Literal["delayed", "ready", "leased"]
    attempt: int
    max_attempts: int | None = Field(description="What counts: its own, else the queue's.")
    own_max_attempts: int | None = Field(description="What the message says for itself; so are lease_for and retry.")
    lease_for: float | None
    retry: RetryPolicy | None
    priority: int
    type: str | None
    headers: dict[str, str] | None
    due_at: At
    created_at: At
    lease_until: At | None
    consumer: str | None
    last_error: str | None
    origin: int | None = Field(description="The version it was redriven from.")
    content_type: str
    payload: Any = None
    payload_base64: str | None = None


class Messages(Answer):
    messages: list[Message]
    next: str | None = Field(description="Give it as `after` for the next page; null on the last.")


class DeadLetter(Answer):
    version: int
    queue: str
    key: str
    attempt: int
    priority: int
    type: str | None
    headers: dict[str, str] | None
    due_at: At
    died_at: At
    reason: str
    error: str | None
    fingerprint: str | None
    consumer: str | None
    origin: int | None = Field(description="The version it was redriven from, if it died before.")
    content_type: str
    payload: Any = None
    payload_base64: str | None = None


class DeadLetters(Answer):
    dead_letters: list[DeadLetter]
    next: str | None = Field(description="Give it as `after` for the next page; null on the last.")


class Count(Answer):
    n: int
    capped: bool = Field(description="There are more: counting stops at a limit.")


class Event(Answer):
    id: int
    kind: str
    at: At
    queue: str
    key: str | None
    version: int | None
    attempt: int | None
    priority: int | None
    due_at: At | None
    leased_at: At | None
    lease_until: At | None
    consumer: str | None
    size: int | None
    payload_hash: str | None
    payload_base64: str | None
    error: str | None
    detail: dict[str, Any] | None


class Timeline(Answer):
    events: list[Event]
    next: int | None = Field(description="Give it as `before` for the events before these; null if there are none.")


class Why(Answer):
    state: str
    deliverable: bool
    reasons: list[str]
    deliverable_at: At | None


class Counts(Answer):
    delayed: Count
    ready: Count
    leased: Count
    dead: Count
    lag_for: float = Field(description="For how long the oldest that could be delivered now has been due.")


class Queue(Answer):
    name: str
    created_at: At
    paused: bool
    paused_at: At | None
    paused_reason: str | None
    lease_for: float = Field(description="Seconds, as all durations in answers.")
    max_attempts: int | None
    retry: RetryPolicy
    journal: str
    retention_for: float
    target_lag_for: float


class Session(Answer):
    until: At | None = Field(description="None: here nobody needs one.")


class CountedQueue(Queue):
    counts: Counts


class Queues(Answer):
    queues: list[CountedQueue]
    next: str | None = Field(description="Give it as `after` for the next page; null on the last.")


class Dropped(Answer):
    dropped: int


class Purged(Answer):
    purged: int


class Deleted(Answer):
    queue: str
    deleted: bool


class Key(Answer):
    id: str
    name: str
    actions: list[str]
    queues: list[str]
    active: bool
    created_at: At
    expires_at: At | None
    revoked_at: At | None


class IssuedKey(Key):
    key: str = Field(description="Shown this once.")


class Keys(Answer):
    keys: list[Key]


class AuditRow(Answer):
    id: int
    at: At
    actor: str
    action: str
    queue: str | None
    detail: dict[str, Any] | None
    request_id: str | None
    status: int | None


class Audit(Answer):
    audit: list[AuditRow]


class Health(Answer):
    status: str


class Now(Answer):
    now: At
