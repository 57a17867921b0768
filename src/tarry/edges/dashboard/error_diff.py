"""The errors of a message's attempts side by side: what each has that the one before it had not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from tarry.core.dead_letters.fingerprints import headline

_LONGEST = 160
_WORDS = re.compile(r"\s+|[^\s\w]+|\w+")


class AttemptError(NamedTuple):
    parts: Sequence[tuple[str, bool]]
    """The headline in pieces; True: the error before had other text there."""
    same_as: int | None
    """The number of the attempt before, if it failed with the same text, traceback included."""


def compared(errors: Sequence[tuple[int, str]]) -> list[AttemptError]:
    """`errors`: the number of each attempt and its error, empty where it had none."""
    result: list[AttemptError] = []
    before: tuple[int, str] | None = None
    for number, error in errors:
        line = headline(error)[:_LONGEST]
        if not error:
            result.append(AttemptError([], None))
            continue
        same = before is not None and before[1] == error
        parts = [(line, False)] if before is None or same else _parts(headline(before[1])[:_LONGEST], line)
        result.append(AttemptError(parts, before[0] if same and before else None))
        before = number, error
    return result


def _parts(before: str, line: str) -> list[tuple[str, bool]]:
    old, new = _WORDS.findall(before), _WORDS.findall(line)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < 0.4:
        return [(line, True)]
    kept = {at for block in matcher.get_matching_blocks() for at in range(block.b, block.b + block.size)}
    return [
        ("".join(new[at] for at in run), is_new)
        for is_new, run in groupby(range(len(new)), key=lambda at: at not in kept)
    ]
