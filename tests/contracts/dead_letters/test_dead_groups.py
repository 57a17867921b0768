"""Dead letters by what they died of, and by filter."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue, Settled
from tarry.app import App
from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.messages.model import Counted
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, keys, take


def die(queue: Queue[Any], key: str, error: str | None, **offer: Any) -> int:
    queue.offer(key, 0, priority=9, **offer)
    delivery = take(queue)
    assert delivery.key == key
    assert delivery.bury(error) is Settled.DONE
    return delivery.version


class TestGroups:
    def test_what_died_of_the_same_is_one_group(self, queue: Queue[Any], clock: WatchedClock) -> None:
        die(queue, "a", "TimeoutError: after 3 s\nTraceback", type="mail")
        clock.advance(SECOND)
        last = die(queue, "b", "TimeoutError: after 40 s\nTraceback", type="sms")
        clock.advance(SECOND)
        die(queue, "c", "KeyError: 'x'")
        odd, usual = queue.dead_letters.groups()
        assert (odd.pattern, odd.count.n, odd.example_key) == ("KeyError: <text>", 1, "c")
        assert (usual.pattern, usual.count.n, usual.count.capped) == ("TimeoutError: after <n> s", 2, False)
        assert (usual.first_died_at, usual.last_died_at) == (START, START + SECOND)
        assert (usual.example, usual.example_key, usual.error) == (last, "b", "TimeoutError: after 40 s\nTraceback")
        assert (usual.types, usual.reason) == (("mail", "sms"), "buried")
        assert (usual.fewest_attempts, usual.most_attempts) == (1, 1)

    def test_a_letter_names_its_group(self, queue: Queue[Any]) -> None:
        die(queue, "a", "x 1")
        (group,) = queue.dead_letters.groups()
        assert [letter.fingerprint for letter in queue.dead_letters.list()] == [group.fingerprint]
        assert group.fingerprint == fingerprint("buried", "x 1")

    @pytest.mark.usefixtures("queue_exists")
    def test_a_queue_without_dead_letters_has_no_groups(self, queue: Queue[Any]) -> None:
        assert queue.dead_letters.groups() == []

    @pytest.mark.usefixtures("queue_exists")
    def test_groups_are_of_one_queue(self, app: App, queue: Queue[Any]) -> None:
        die(app.queue(queue.name + "-other"), "a", "x")
        assert queue.dead_letters.groups() == []

    def test_groups_and_their_counts_stop_at_the_requested_limits(self, app: App, queue: Queue[Any]) -> None:
        for key, error in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")):
            die(queue, key, error)
        assert [group.pattern for group in queue.dead_letters.groups(limit=1)] == ["y"]
        assert queue.dead_letters.groups(limit=0) == []
        counts = sorted(group.count for group in app.store.run(app.store.dead_letters.groups(queue.name, cap=2)))
        assert counts == [Counted(1), Counted(2, capped=True)]

    def test_without_an_error_they_are_a_group_too(self, queue: Queue[Any]) -> None:
        die(queue, "a", None)
        die(queue, "b", None)
        (group,) = queue.dead_letters.groups()
        assert (group.pattern, group.error, group.count.n) == ("", None, 2)

    def test_an_error_of_an_earlier_attempt_groups_as_if_it_had_been_the_last(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 0, max_attempts=2)
        take(queue).nack("boom 1", after=0 * SECOND)
        take(queue).nack()
        queue.offer("b", 0, max_attempts=1)
        take(queue).nack("boom 2")
        queue.offer("c", 0, max_attempts=2)
        take(queue).nack("boom 3", after=0 * SECOND)
        take(queue)
        clock.advance(MINUTE)
        assert queue.try_poll() is None
        (group,) = queue.dead_letters.groups()
        assert (group.count.n, group.pattern, group.most_attempts) == (3, "boom <n>", 2)
        assert keys(queue.dead_letters.list(fingerprint=group.fingerprint)) == ["c", "b", "a"]

    def test_what_cannot_be_decoded_is_not_what_failed(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "poison")
        assert app.queue(queue.name, int).try_poll() is None
        die(queue, "b", "x")
        assert {group.reason for group in queue.dead_letters.groups()} == {"undecodable", "buried"}


class TestFilters:
    @pytest.fixture
    def versions(self, queue: Queue[Any], clock: WatchedClock) -> list[int]:
        """a/1, a/2 and b/1, a second apart, of two errors and two types."""
        made: list[int] = []
        for key, error, type_name in (("a/1", "x", "t"), ("a/2", "y", "u"), ("b/1", "x", None)):
            made.append(die(queue, key, error, type=type_name))
            clock.advance(SECOND)
        return made

    def keys_of(self, queue: Queue[Any], **where: Any) -> list[str]:
        listed = keys(queue.dead_letters.list(**where))
        assert queue.dead_letters.count(**where).letters.n == len(listed)
        return listed

    def test_each_way_to_choose(self, queue: Queue[Any], versions: list[int]) -> None:
        assert self.keys_of(queue) == ["b/1", "a/2", "a/1"]
        assert self.keys_of(queue, fingerprint=fingerprint("buried", "x")) == ["b/1", "a/1"]
        assert self.keys_of(queue, type="t") == ["a/1"]
        assert self.keys_of(queue, key_prefix="a/") == ["a/2", "a/1"]
        assert self.keys_of(queue, versions=[versions[1], 10**15]) == ["a/2"]
        assert self.keys_of(queue, versions=[]) == []
        assert self.keys_of(queue, died_from=START + SECOND) == ["b/1", "a/2"]
        assert self.keys_of(queue, died_to=START + SECOND) == ["a/1"]

    def test_ways_to_choose_are_joined_by_and(self, queue: Queue[Any], versions: list[int]) -> None:
        x = fingerprint("buried", "x")
        assert self.keys_of(queue, fingerprint=x, key_prefix="a/") == ["a/1"]
        assert self.keys_of(queue, fingerprint=x, versions=versions[1:]) == ["b/1"]
        assert self.keys_of(queue, fingerprint=x, died_from=START + SECOND) == ["b/1"]
        assert self.keys_of(queue, versions=versions, died_to=START + 2 * SECOND, type="u") == ["a/2"]

    def test_a_prefix_is_plain_text(self, queue: Queue[Any], versions: list[int]) -> None:
        assert self.keys_of(queue, key_prefix="%") == []
        assert self.keys_of(queue, key_prefix="a_") == []

    def test_a_count_includes_how_many_keys_are_live_again(self, queue: Queue[Any], versions: list[int]) -> None:
        queue.offer("a/1", "new")
        matching = queue.dead_letters.count(key_prefix="a/")
        assert (matching.letters.n, matching.blocked) == (2, 1)

    def test_a_count_stops_at_its_limit(self, queue: Queue[Any], versions: list[int]) -> None:
        assert queue.dead_letters.count(limit=2).letters == Counted(2, capped=True)
        assert queue.dead_letters.count(limit=3).letters == Counted(3)

    def test_some_are_given_up_and_the_others_stay(self, queue: Queue[Any], versions: list[int]) -> None:
        assert queue.dead_letters.discard(fingerprint=fingerprint("buried", "x")) == 2
        assert self.keys_of(queue) == ["a/2"]
        assert queue.dead_letters.discard() == 1

    def test_one_by_its_version(self, queue: Queue[Any], versions: list[int]) -> None:
        letter = queue.dead_letters.get(versions[0])
        assert letter is not None
        assert (letter.key, letter.consumer, letter.origin) == ("a/1", "tester", None)
        assert queue.dead_letters.get(10**15) is None
        assert queue.dead_letters.get(-1) is None
