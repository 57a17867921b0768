from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.messages import batches
from tarry.core.messages.model import EARLIEST, KEEP, REPLACE, Conflict, Draft
from tarry.core.messages.outcomes import Outcome

NOW = datetime(2024, 1, 1, tzinfo=UTC)
DEBOUNCE = Conflict.debounce(timedelta(minutes=1))
IGNORED, SUPERSEDED = Outcome.IGNORED, Outcome.SUPERSEDED


def after(seconds: float, conflict: Conflict = REPLACE, key: str = "k") -> Draft:
    return Draft(key, b"{}", after=timedelta(seconds=seconds), conflict=conflict)


def at(seconds: float, conflict: Conflict = REPLACE, key: str = "k") -> Draft:
    return Draft(key, b"{}", due_at=NOW + timedelta(seconds=seconds), conflict=conflict)


def fold(drafts: list[Draft], now: datetime | None) -> tuple[list[int], list[Outcome | None]]:
    """The indexes of the drafts that are left to the store, and the outcomes."""
    kept, outcomes = batches.fold(drafts, now)
    indexes = [index for index, outcome in enumerate(outcomes) if outcome is None]
    assert [draft.key for draft in kept] == [drafts[index].key for index in indexes]
    return indexes, outcomes


def test_an_empty_batch_has_no_survivors() -> None:
    assert fold([], NOW) == ([], [])


def test_different_keys_all_survive_in_input_order_and_the_store_decides() -> None:
    drafts = [after(1, key=key) for key in "cab"]
    assert fold(drafts, NOW) == ([0, 1, 2], [None, None, None])


@pytest.mark.parametrize("rule", [REPLACE, DEBOUNCE])
@pytest.mark.parametrize("first", [REPLACE, KEEP, EARLIEST, DEBOUNCE])
def test_a_later_replace_or_debounce_supersedes_whatever_was_before(first: Conflict, rule: Conflict) -> None:
    assert fold([after(1, first), after(2, rule)], NOW) == ([1], [SUPERSEDED, None])


@pytest.mark.parametrize("first", [REPLACE, KEEP, EARLIEST, DEBOUNCE])
def test_a_later_keep_is_ignored(first: Conflict) -> None:
    assert fold([after(2, first), after(1, KEEP)], NOW) == ([0], [None, IGNORED])


@pytest.mark.parametrize("first", [REPLACE, KEEP, EARLIEST, DEBOUNCE])
def test_a_later_earliest_wins_only_if_it_is_due_earlier(first: Conflict) -> None:
    assert fold([after(2, first), after(1, EARLIEST)], NOW) == ([1], [SUPERSEDED, None])
    assert fold([after(2, first), after(2, EARLIEST)], NOW) == ([0], [None, IGNORED])
    assert fold([after(2, first), after(3, EARLIEST)], NOW) == ([0], [None, IGNORED])


def test_three_of_a_kind_leave_the_last() -> None:
    assert fold([after(1), after(1), after(1)], NOW) == ([2], [SUPERSEDED, SUPERSEDED, None])


def test_the_survivors_of_several_keys_come_in_input_order() -> None:
    drafts = [after(1, key="a"), after(1, key="b"), after(1, key="a"), after(1, KEEP, key="b")]
    assert fold(drafts, NOW) == ([1, 2], [SUPERSEDED, None, None, IGNORED])


def test_what_was_ignored_is_not_compared_with_later_entries() -> None:
    drafts = [after(5), after(9, EARLIEST), after(7, EARLIEST), after(4, EARLIEST)]
    assert fold(drafts, NOW) == ([3], [SUPERSEDED, IGNORED, IGNORED, None])


def test_instants_and_delays_compare_by_the_clock_that_is_given() -> None:
    assert fold([at(10), after(9, EARLIEST)], NOW)[0] == [1]
    assert fold([at(10), after(11, EARLIEST)], NOW)[0] == [0]
    assert fold([after(10), at(9, EARLIEST)], NOW)[0] == [1]
    assert fold([after(10), at(11, EARLIEST)], NOW)[0] == [0]


def test_two_instants_or_two_delays_need_no_clock() -> None:
    assert fold([at(2), at(1, EARLIEST)], None)[0] == [1]
    assert fold([at(1), at(2, EARLIEST)], None)[0] == [0]
    assert fold([after(2), after(1, EARLIEST)], None)[0] == [1]
    assert fold([after(1), after(2, EARLIEST)], None)[0] == [0]


def test_without_a_clock_no_delay_is_earlier_than_any_instant() -> None:
    assert fold([at(-5), after(0, EARLIEST)], None)[0] == [1]
    assert fold([after(0), at(-5, EARLIEST)], None)[0] == [0]


def test_without_a_clock_what_cannot_be_compared_leaves_the_first() -> None:
    assert fold([at(10), after(1, EARLIEST)], None)[0] == [0]
    assert fold([after(10), at(1, EARLIEST)], None)[0] == [0]


def test_instants_compare_as_instants_also_in_the_hour_that_a_zone_repeats() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=n) for n in (0, 1))
    drafts = [Draft("k", b"", due_at=second), Draft("k", b"", due_at=first, conflict=EARLIEST)]
    assert fold(drafts, None)[0] == [1]


def test_an_earliest_that_took_the_place_of_a_replace_is_applied_as_a_replace() -> None:
    drafts = [after(9), after(5, EARLIEST), after(3, EARLIEST, key="other")]
    applied, _ = batches.fold(drafts, NOW)
    assert [draft.conflict for draft in applied] == [REPLACE, EARLIEST]
    assert [draft.after for draft in applied] == [timedelta(seconds=5), timedelta(seconds=3)]


def test_an_earliest_that_took_the_place_of_a_keep_or_an_earliest_stays_one() -> None:
    drafts = [after(9, KEEP), after(7, EARLIEST), after(5, EARLIEST)]
    assert batches.fold(drafts, NOW)[0] == [drafts[2]]


def test_a_replace_behind_an_earliest_gives_it_no_force() -> None:
    drafts = [after(5, EARLIEST), after(9, EARLIEST), after(1, KEEP)]
    assert batches.fold(drafts, NOW)[0] == [drafts[0]]


_drafts = st.builds(
    lambda key, seconds, conflict, timed: (at if timed else after)(seconds, conflict, key),
    st.sampled_from("abc"),
    st.integers(0, 5),
    st.sampled_from([REPLACE, KEEP, EARLIEST, DEBOUNCE]),
    st.booleans(),
)


@given(st.lists(_drafts, max_size=20), st.sampled_from([NOW, None]))
def test_exactly_one_entry_of_each_key_is_left_to_the_store(drafts: list[Draft], now: datetime | None) -> None:
    survivors, outcomes = fold(drafts, now)
    assert sorted(drafts[index].key for index in survivors) == sorted({draft.key for draft in drafts})
    assert len(outcomes) == len(drafts)
    assert {outcome for outcome in outcomes if outcome} <= {IGNORED, SUPERSEDED}
