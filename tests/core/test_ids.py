"""Generated keys: UUIDv7 that sort by time."""

from __future__ import annotations

from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from tarry.core.ids import uuid7, uuid7s

instants = st.integers(0, (2**48 - 1) * 1_000_000)
entropies = st.binary(min_size=8, max_size=8)


@given(instants, entropies)
def test_it_is_a_version_7_uuid_in_its_usual_spelling(at: int, entropy: bytes) -> None:
    made = UUID(uuid7(at, entropy))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert str(made) == uuid7(at, entropy)


@given(instants, entropies)
def test_its_first_48_bits_are_the_milliseconds(at: int, entropy: bytes) -> None:
    assert UUID(uuid7(at, entropy)).int >> 80 == at // 1_000_000


@given(instants, st.integers(300, 10**12), entropies, entropies)
def test_a_later_one_sorts_later_also_within_a_millisecond(at: int, later: int, first: bytes, other: bytes) -> None:
    """A millisecond has 4,096 steps: what is 300 nanoseconds apart is at least one step apart."""
    if (at + later) // 1_000_000 < 2**48:
        assert uuid7(at, first) < uuid7(at + later, other)


@given(instants, entropies)
def test_what_time_leaves_open_is_filled_with_entropy(at: int, entropy: bytes) -> None:
    bits = int.from_bytes(entropy) & (2**62 - 1)
    assert UUID(uuid7(at, entropy)).int & (2**62 - 1) == bits


def test_a_known_instant_gives_a_known_key() -> None:
    assert uuid7(1_704_067_200_000_000_000, b"\xff" * 8) == "018cc251-f400-7000-bfff-ffffffffffff"
    assert uuid7(1_704_067_200_000_500_000, b"\x00" * 8) == "018cc251-f400-7800-8000-000000000000"


@given(st.integers(0, 2**61), st.integers(0, 9_000))
def test_many_are_made_from_one_instant_on_and_ascend(at: int, n: int) -> None:
    made = uuid7s(at, ["8000-000000000000"] * n)
    assert len(made) == n
    assert made == sorted(set(made))
    assert made[:1] == [uuid7(at, bytes(8))][:n]
    assert not made or UUID(made[-1]).int >> 80 <= (at // 1_000_000) + 3
