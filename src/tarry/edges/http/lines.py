"""Lines of a stream of bytes, one after the other, none of them longer than allowed."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple


class BadLine(NamedTuple):
    problem: str


class Lines:
    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._too_long = False

    async def read(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes | BadLine]:
        """Those that are empty, too, so that the numbers are those of the file; but not one after the last line end."""
        async for chunk in chunks:
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                yield self._ended(chunk[start:end])
                start = end + 1
            self._keep(chunk[start:])
        if self._rest or self._too_long:
            yield self._ended(b"")

    def _keep(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._longest:
            self._rest.clear()
            self._too_long = True

    def _ended(self, part: bytes) -> bytes | BadLine:
        self._keep(part)
        line, too_long = bytes(self._rest), self._too_long
        self._rest.clear()
        self._too_long = False
        return BadLine(f"a line has at most {self._longest:,} bytes") if too_long else line
