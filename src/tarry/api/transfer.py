"""Export and import of a queue as a stream of lines, without holding the whole queue in memory.

All decisions about lines are made here; callers do the I/O on stores, sockets and files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tarry.api.drafts import Drafter
from tarry.core.errors import InvalidInput, TarryError
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.wire.messages import OfferRequest
from tarry.wire.payload import CONTENT

PAGE = 200
"""Messages per page of an export: at most 50 MiB of payloads."""
BATCH = 500
BATCH_BYTES = 1024 * 1024
LONGEST_LINE = 1024 * 1024
_MOST_PROBLEMS = 1_000
"""Bad lines with a recorded problem; further ones are only marked as refused."""
_MARK = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark, which some editors write at the beginning of a file."""
OUTCOMES = ("created", "updated", "ignored", "superseded", "refused", "not_stored", "blank", "fine")
OnBad = Literal["skip", "stop"]


class BadLine(NamedTuple):
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import. `refused` lines are invalid; `not_stored` lines are valid but were discarded with an invalid
    line in their batch; `fine` lines would be stored without `dry_run`."""

    lines: int
    created: int
    updated: int
    ignored: int
    superseded: int
    refused: int
    not_stored: int
    blank: int
    fine: int
    problems: Mapping[int, str]
    """The problems of the first thousand refused lines, by line number."""


class Lines:
    """Splits a stream of bytes into lines of limited length."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._too_long = False

    def split(self, chunk: bytes) -> Iterator[bytes | BadLine]:
        """The lines that end in this chunk, including empty ones, so that line numbers match the file."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield self._ended(chunk[start:end])
            start = end + 1
        self._keep(chunk[start:])

    def end(self) -> Iterator[bytes | BadLine]:
        """The rest after the last line end, if any."""
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


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes | BadLine]:
    splitting = Lines()
    for chunk in chunks:
        yield from splitting.split(chunk)
    yield from splitting.end()


class Importing:
    """The state of an import: one byte per line and one batch of messages in memory."""

    def __init__(self, payload_limit: int, *, on_bad: OnBad = "skip", dry_run: bool = False) -> None:
        if on_bad not in ("skip", "stop"):
            raise InvalidInput(f"on_bad is skip or stop, not {on_bad!r:.80}")
        self._drafter = Drafter(CONTENT, payload_limit)
        self._stop = on_bad == "stop"
        self._dry_run = dry_run
        self._outcomes = bytearray()
        self._batch: list[tuple[int, Draft]] = []
        self._bytes = 0
        self.problems: dict[int, str] = {}
        self.stopped = False

    def take(self, line: bytes | BadLine) -> list[Draft]:
        """The batch to store before the next line is taken; report its outcome with `stored`."""
        if self.stopped:
            return []
        index = len(self._outcomes)
        self._note(index, "fine")
        if index == 0 and isinstance(line, bytes):
            line = line.removeprefix(_MARK)
        if isinstance(line, bytes) and not line.strip():
            self._note(index, "blank")
            return []
        try:
            if isinstance(line, BadLine):
                raise InvalidInput(line.problem)
            draft = self._drafter.draft_message(OfferRequest.parse_line(line).core())
        except TarryError as error:
            self._refuse(index, error.message[:500])
            return []
        self._batch.append((index, draft))
        self._bytes += len(line)
        return self.rest() if len(self._batch) >= BATCH or self._bytes >= BATCH_BYTES else []

    def batches(self, lines: Iterable[bytes | BadLine]) -> Iterator[list[Draft]]:
        """Batches of all lines; each must be stored before the next one is requested."""
        for line in lines:
            if batch := self.take(line):
                yield batch
            if self.stopped:
                break
        if batch := self.rest():
            yield batch

    def rest(self) -> list[Draft]:
        """The batch to store after the last line."""
        if self._dry_run:
            self._batch = []
        self._bytes = 0
        return [draft for _, draft in self._batch]

    def stored(self, outcomes: Sequence[Outcome]) -> None:
        batch, self._batch = self._batch, []
        for (index, _), outcome in zip(batch, outcomes, strict=True):
            self._note(index, outcome.value)

    @property
    def lines(self) -> int:
        """Number of lines taken."""
        return len(self._outcomes)

    @property
    def stored_lines(self) -> int:
        """The number of lines that are final even if storing the pending batch fails."""
        return self._batch[0][0] if self._batch else len(self._outcomes)

    def failed(self, error: TarryError) -> None:
        error.add_note(f"the lines up to {self.stored_lines:,} are stored; those after it are not")

    def outcomes(self) -> Iterator[str]:
        """The outcome of each line."""
        return (OUTCOMES[code] for code in self._outcomes)

    def imported(self) -> Imported:
        counted = Counter(self._outcomes)
        sums = {name: counted[code] for code, name in enumerate(OUTCOMES)}
        problems = {index + 1: problem for index, problem in self.problems.items()}
        return Imported(lines=len(self._outcomes), **sums, problems=problems)

    def _refuse(self, index: int, problem: str) -> None:
        self._note(index, "refused")
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems[index] = problem
        if self._stop:
            for dropped, _ in self._batch:
                self._note(dropped, "not_stored")
            self._batch, self.stopped = [], True

    def _note(self, index: int, outcome: str) -> None:
        self._outcomes[index : index + 1] = bytes((OUTCOMES.index(outcome),))
