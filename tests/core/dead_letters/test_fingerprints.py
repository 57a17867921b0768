"""Errors that read alike but for their particulars have one fingerprint; errors that do not, do not."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.dead_letters.fingerprints import LENGTH, READ, fingerprint, headline, pattern

EXAMPLES = [
    (None, ""),
    ("", ""),
    (" \n\t\n", ""),
    ("ValueError: no such order", "ValueError: no such order"),
    ("KeyError: 'order-17'\n\nTraceback (most recent call last):\n  File x", "KeyError: <text>"),
    ("\n\n  TimeoutError: after 30.5 s", "TimeoutError: after <n> s"),
    ("connect to 10.0.0.7:5432 failed", "connect to <n> failed"),
    ('bad value "a b" in `c`', "bad value <text> in <text>"),
    ("can't open it's file", "can't open it's file"),
    ("<Order object at 0x7f3ab2c4d910> is gone", "<Order object at <hex>> is gone"),
    ("order 123e4567-e89b-12d3-a456-426614174000 is gone", "order <uuid> is gone"),
    ("commit 9f86d081884c7d65 is unknown", "commit <hex> is unknown"),
    ("a decade of faceless cabbage", "a decade of faceless cabbage"),
    ("row 5,  column -12:  +3", "row <n>, column <n>: <n>"),
    ("at 2024-01-31T18:00:00Z", "at <n><n><n>T<n>Z"),
]


@pytest.mark.parametrize(("error", "expected"), EXAMPLES)
def test_the_pattern_of_an_error(error: str | None, expected: str) -> None:
    assert pattern(error) == expected


def test_it_is_short_and_stays_what_it_is() -> None:
    """It is stored: if this changes, the dead letters of before are in other groups than those of after."""
    assert fingerprint("exhausted", "KeyError: 'order-17'") == "1549ccdded22"
    assert re.fullmatch(f"[0-9a-f]{{{LENGTH}}}", fingerprint("buried", None))


def test_what_it_died_of_is_also_the_reason() -> None:
    assert fingerprint("exhausted", "x") != fingerprint("buried", "x") != fingerprint("undecodable", "x")


plain = st.text(st.characters(codec="ascii", categories=("Ll", "Zs")), min_size=1, max_size=20)


@given(plain, plain, st.lists(st.integers(), min_size=2, max_size=2))
def test_numbers_do_not_matter(before: str, after: str, numbers: list[int]) -> None:
    first, other = (fingerprint("exhausted", f"{before} {number} {after}") for number in numbers)
    assert first == other


@given(plain, st.lists(st.uuids(), min_size=2, max_size=2))
def test_uuids_do_not_matter(before: str, uuids: list[UUID]) -> None:
    first, other = (fingerprint("exhausted", f"{before} {uuid}: gone") for uuid in uuids)
    assert first == other


@given(
    plain, st.text(st.characters(exclude_characters="'\n", exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=50)
)
def test_what_is_quoted_does_not_matter(before: str, quoted: str) -> None:
    assert fingerprint("exhausted", f"{before} '{quoted}' is bad") == fingerprint("exhausted", f"{before} 'x' is bad")


@given(plain.filter(str.strip), st.text())
def test_what_follows_the_first_line_does_not_matter(line: str, rest: str) -> None:
    assert fingerprint("exhausted", f"{line}\n{rest}") == fingerprint("exhausted", line)


@given(st.text())
def test_any_text_has_one_and_what_is_not_read_does_not_matter(error: str) -> None:
    assert len(fingerprint("exhausted", error)) == LENGTH
    assert "\n" not in pattern(error)
    assert fingerprint("exhausted", error) == fingerprint("exhausted", error[:READ])


TRACEBACK = """Traceback (most recent call last):
  File "/app/pay.py", line 88, in charge
    raise TimeoutError("slow")
{last}
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TRACEBACK.format(last="TimeoutError: no response after 30 s"), "TimeoutError: no response after 30 s"),
        (TRACEBACK.format(last="shop.errors.Declined: card\n  of the customer"), "shop.errors.Declined: card"),
        (TRACEBACK.format(last="KeyboardInterrupt"), "KeyboardInterrupt"),
        ("ValueError: x\n\n" + TRACEBACK.format(last="ValueError: x"), "ValueError: x"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        (TRACEBACK.format(last="OSError: far") + "x" * 0 + "\n" * 3, "OSError: far"),
        ("  \n first\nsecond", "first"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_traceback_is_named_by_its_last_line(error: str | None, expected: str) -> None:
    assert headline(error) == expected


def test_tracebacks_of_different_errors_have_different_fingerprints() -> None:
    slow, odd = (TRACEBACK.format(last=line) for line in ("TimeoutError: 30 s", "KeyError: 'id'"))
    assert fingerprint("exhausted", slow) != fingerprint("exhausted", odd)
    assert fingerprint("exhausted", slow) == fingerprint("exhausted", TRACEBACK.format(last="TimeoutError: 60 s"))
