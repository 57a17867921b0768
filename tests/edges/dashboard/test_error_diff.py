"""Errors of attempts side by side."""

from __future__ import annotations

from tarry.edges.dashboard.error_diff import compared


def marked(*errors: str) -> list[str]:
    """Each error with what is new in brackets."""
    rows = compared(list(enumerate(errors, 1)))
    return ["".join(f"[{text}]" if is_new else text for text, is_new in row.parts) for row in rows]


def test_what_differs_from_the_error_before_is_marked() -> None:
    assert marked("timeout after 30 s", "timeout after 60 s") == ["timeout after 30 s", "timeout after [60] s"]


def test_another_error_is_new_as_a_whole() -> None:
    assert marked("timeout after 30 s", "KeyError: 'id'")[1] == "[KeyError: 'id']"


def test_the_same_error_names_the_attempt_before_and_a_success_between_does_not_matter() -> None:
    rows = compared([(1, "boom"), (2, ""), (3, "boom")])
    assert [row.same_as for row in rows] == [None, None, 1]
    assert [list(row.parts) for row in rows] == [[("boom", False)], [], [("boom", False)]]


def test_of_tracebacks_the_last_lines_are_compared() -> None:
    trace = "Traceback (most recent call last):\n  File 'x'\nOSError: disk {n}"
    assert marked(trace.format(n=1), trace.format(n=2))[1] == "OSError: disk [2]"
