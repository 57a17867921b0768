"""A key in an open transaction blocks a leader for seconds, not for as long as the transaction."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

import tarry
from tarry.core.errors import InvalidState
from tests.kit.sleepers import until
from tests.kit.steps import TIMEOUT_S, in_background, take


@pytest.mark.chaos
def test_a_redrive_step_of_a_leader_fails_if_another_transaction_blocks_it(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as theirs:
        orders = app.queue("orders")
        orders.offer("a", 1)
        delivery = orders.try_poll()
        assert delivery is not None
        delivery.bury("x")
        redrive = orders.dead_letters.start_redrive()
        orders.offer("a", 2, conn=theirs)
        held = app.store.run(app.store.maintenance.acquire("sweeper", "alice", timedelta(minutes=1)))
        with pytest.raises(InvalidState, match="has locked what this needs"):
            app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=held))
        theirs.commit()
        app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=held))
        assert (redrive.refresh().redriven, redrive.job.skipped) == (0, 1)


def test_a_job_redrives_a_letter_that_another_transaction_has_locked_for_a_moment(database: str) -> None:
    """As the sweeper does when it writes fingerprints down."""
    with (
        tarry.connect(database) as app,
        psycopg.connect(database) as labelling,
        psycopg.connect(database, autocommit=True) as watcher,
    ):
        orders = app.queue("orders")
        for key in ("a", "b", "c"):
            orders.offer(key, 1)
            take(orders).bury("x")
        redrive = orders.dead_letters.start_redrive()
        labelling.execute("update tarry.dead_letter set fingerprint = 'f' where key = 'b'")
        waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        with in_background(app.store.run, app.store.dead_letters.advance_redrive(redrive.id)) as step:
            until(lambda: step.done() or watcher.execute(waits).fetchone() == (1,), "the step does not wait")
            labelling.commit()
            step.result(TIMEOUT_S)
        assert (redrive.refresh().redriven, redrive.job.skipped) == (3, 0)
        assert sorted(delivery.key for delivery in orders.try_poll_many(10)) == ["a", "b", "c"]
