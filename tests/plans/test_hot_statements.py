"""Every hot statement has one good plan, and keeps it: whatever the table was like when the plan was made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.servers import Servers
from tests.plans.explaining import Plan, fresh, kept, undone
from tests.plans.scenes import HOT, RARE, WAYS, Moment, Scene, Scenes, bound

SERVERS = {
    "18": tuple(Moment),
    "system": (Moment.EMPTY, Moment.FULL),
}
SCENES = [
    pytest.param(server, moment, id=f"{server}-{moment.name}") for server, all_ in SERVERS.items() for moment in all_
]


@pytest.fixture(scope="module")
def scenes(servers: Servers) -> Iterator[Scenes]:
    scenes = Scenes(servers)
    yield scenes
    scenes.close()


def run_kept(scene: Scene, name: str, n: int) -> Plan:
    with undone(scene.own):
        return kept(scene.own, HOT[name](n), run=True)


def run_fresh(scene: Scene, name: str, n: int) -> Plan:
    with undone(scene.other):
        return fresh(scene.other, HOT[name](n), run=True)


@pytest.mark.parametrize("name", HOT)
@pytest.mark.parametrize(("server", "moment"), SCENES)
def test_a_kept_plan_goes_by_its_index_and_touches_only_what_it_must(
    scenes: Scenes, server: str, moment: Moment, name: str
) -> None:
    scene = scenes.get(server, moment)
    for n in (1, 100, 1_000):
        plan = run_kept(scene, name, n)
        assert plan.ways() == WAYS[name]
        assert plan.rows() <= bound(name, n)


@pytest.mark.parametrize("name", HOT)
@pytest.mark.parametrize(("server", "moment"), SCENES)
def test_a_plan_made_under_default_settings_is_as_good(scenes: Scenes, server: str, moment: Moment, name: str) -> None:
    scene = scenes.get(server, moment)
    for n in (1, 100, 1_000):
        plan = run_fresh(scene, name, n)
        assert plan.ways() == WAYS[name]
        assert plan.rows() <= bound(name, n)


@pytest.mark.parametrize("name", ["lease", "ack", "ack_by_key", "touch", "release", "read", "drop"])
@pytest.mark.parametrize("moment", Moment)
def test_one_message_costs_a_handful_of_pages_however_long_the_queue(scenes: Scenes, moment: Moment, name: str) -> None:
    scene = scenes.get("18", moment)
    assert run_kept(scene, name, 1).buffers < 50
    assert run_fresh(scene, name, 1).buffers < 50


@pytest.mark.parametrize("moment", Moment)
def test_one_message_takes_a_small_plan(scenes: Scenes, moment: Moment) -> None:
    """Most of the time of a single message is spent on starting and ending the nodes of its plan."""
    scene = scenes.get("18", moment)
    for name, most in {"offer": 13, "ack": 7, "lease": 25}.items():
        kinds = [node.kind for node in run_kept(scene, name, 1).nodes()]
        assert len(kinds) <= most, (name, sorted(kinds))
        assert not {"Sort", "Append", "Hash"} & {*kinds}
        assert name == "lease" or "Aggregate" not in kinds


def test_a_table_of_the_hot_path_has_no_check_that_each_statement_would_read_anew(scenes: Scenes) -> None:
    """What is stored is checked by domains: a constraint was a tenth of the database's time of a single offer."""
    checks = (
        "select conname from pg_constraint where contype = 'c' "
        "and conrelid in ('tarry.message'::regclass, 'tarry.event'::regclass)"
    )
    assert scenes.get("18", Moment.EMPTY).own.execute(checks, prepare=False).fetchall() == []


@pytest.mark.parametrize("moment", Moment)
def test_offering_finds_what_it_conflicts_with_through_the_key(scenes: Scenes, moment: Moment) -> None:
    scene = scenes.get("18", moment)
    for plan in (run_kept(scene, "offer", 100), run_fresh(scene, "offer", 100)):
        (insert,) = [node for node in plan.nodes() if node.facts.get("Conflict Resolution") == "UPDATE"]
        assert insert.facts["Conflict Arbiter Indexes"] == ["message_key"]
        assert insert.facts["Conflicting Tuples"] == 100
        assert plan.buffers < 30 * 100


@pytest.mark.parametrize("moment", Moment)
def test_looking_for_one_type_does_not_walk_over_the_others(scenes: Scenes, moment: Moment) -> None:
    scene = scenes.get("18", moment)
    for name in ("lease_typed", "wait_typed"):
        for plan in (run_kept(scene, name, 10), run_fresh(scene, name, 10)):
            assert plan.rows() <= RARE


@pytest.mark.parametrize("moment", Moment)
def test_offering_looks_up_the_sleepers_of_its_queue_and_reads_no_row_if_there_are_none(
    scenes: Scenes, moment: Moment
) -> None:
    scene = scenes.get("18", moment)
    with undone(scene.own):
        scene.own.execute(_OTHERS_SLEEP, prepare=False)
        for name in ("offer", "nack", "release"):
            for n in (1, 1_000):
                plan = kept(scene.own, HOT[name](n), run=True)
                assert plan.ways("waiter") == {"waiter_pkey"}
                assert plan.rows("waiter") == 0


_OTHERS_SLEEP = """
    insert into tarry.waiter (queue, type, process, wakes_at)
    select 1000 + i, '', 'sleeper', now() + interval '1 hour' from generate_series(1, 500) i
"""
