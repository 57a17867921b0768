"""Dead letters chosen, grouped and redriven, on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tarry.core import limits
from tarry.core.redriving import FASTEST, MOST_CANARIES, SLOWEST, DeadFilter
from tarry.edges.http.answers import Answer, At, Count
from tarry.edges.http.contracts import MOST, Instant, Key, RequestName, Strict, TypeName, Version, Versions


class RedriveNowRequest(Strict):
    versions: Versions | None = Field(default=None, description="These; else the oldest.")
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


class RedriveRequest(Strict):
    """Which dead letters, all of the queue if nothing is said; and how."""

    fingerprint: Annotated[str, Field(max_length=100)] | None = Field(default=None, description="Of a group.")
    type: TypeName | None = None
    key_prefix: Key | None = None
    died_from: Instant | None = None
    died_to: Instant | None = None
    versions: Annotated[list[Version], Field(max_length=MOST)] | None = None
    rate: Annotated[float, Field(ge=SLOWEST, le=FASTEST)] | None = Field(
        default=None, description="Messages a second; else as fast as it goes."
    )
    canary: Annotated[int, Field(ge=0, le=MOST_CANARIES)] = Field(
        default=0, description="So many first; the rest when those went well."
    )
    who: Annotated[str, Field(min_length=1, max_length=limits.KEY_LENGTH)] | None = Field(
        default=None, description="Who wants it; else the key."
    )
    request: RequestName | None = Field(default=None, description="Said again with the same one, it is the same job.")

    def where(self) -> DeadFilter:
        return DeadFilter.of(
            {
                "fingerprint": self.fingerprint,
                "type": self.type,
                "key_prefix": self.key_prefix,
                "died_from": self.died_from,
                "died_to": self.died_to,
                "versions": self.versions,
            }
        )


class DeadGroup(Answer):
    fingerprint: str
    reason: str
    pattern: str = Field(description="The error without its particulars.")
    count: Count
    first_died_at: At
    last_died_at: At
    example: int = Field(description="The version of the newest one.")
    example_key: str
    error: str | None
    types: list[str]
    fewest_attempts: int
    most_attempts: int


class DeadGroups(Answer):
    groups: list[DeadGroup]


class Matching(Answer):
    letters: Count
    blocked: int = Field(description="Those whose key is live again: they would stay dead.")


class DeadChoice(Answer):
    fingerprint: str | None
    type: str | None
    key_prefix: str | None
    died_from: At | None
    died_to: At | None
    versions: list[int] | None


class Redrive(Answer):
    id: int
    queue: str
    where: DeadChoice
    state: Literal["running", "paused", "cancelled", "done", "failed"]
    phase: Literal["canary", "verdict", "rest"]
    share: float = Field(description="How much of it is done, from 0 to 1.")
    total: Count = Field(description="What matched when it began.")
    redriven: int
    skipped: int = Field(description="Still dead, because their keys were live.")
    rate: float | None
    canary: int
    canaries: list[int]
    canary_keys: list[str]
    reason: str | None = Field(description="Why it is paused, cancelled or failed.")
    who: str | None
    step: int
    moved: int = Field(description="How many live again by the step that was just made.")
    created_at: At
    updated_at: At
    next_at: At
    ended_at: At | None


class Redrives(Answer):
    redrives: list[Redrive]


class Redriven(Answer):
    redriven: int
