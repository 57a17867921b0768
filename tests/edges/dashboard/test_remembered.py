"""Values that pages share for some seconds."""

from __future__ import annotations

import asyncio
from itertools import count

from tarry.edges.dashboard.remembered import Remembered


def test_a_value_is_read_again_after_its_time_and_after_an_action() -> None:
    now, numbers = [0.0], count()
    remembered = Remembered(timer=lambda: now[0])

    async def read() -> int:
        return next(numbers)

    async def get(key: str) -> int:
        return await remembered.get(key, 5, read)

    async def story() -> None:
        assert [await get("a"), await get("a"), await get("b")] == [0, 0, 1]
        now[0] = 5.0
        assert await get("a") == 2
        remembered.forget()
        assert await get("a") == 3

    asyncio.run(story())
