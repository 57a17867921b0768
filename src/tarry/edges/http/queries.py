"""Query parameters that several routes share."""

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BeforeValidator, Field

from tarry.wire.base import MOST, NAME_PATTERN, read_instant
from tarry.wire.ids import POSITION

QueueName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100, examples=["orders"])]
Moment = Annotated[datetime, BeforeValidator(read_instant), Field(description="RFC 3339, with its zone.")]
Limit = Annotated[int, Query(ge=1, le=MOST)]
CountTo = Annotated[int, Query(ge=0, le=1_000_000)]
After = Annotated[str | None, Query(pattern=POSITION, description="`next` of the page before.")]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the page before.")]
