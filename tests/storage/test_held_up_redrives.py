"""A key that is in somebody's open transaction holds a leader up for seconds, not for as long as the transaction."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

import tarry
from tarry.core.errors import Refused


@pytest.mark.chaos
def test_a_leader_gives_up_on_a_step_that_somebody_holds_up(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as theirs:
        orders = app.queue("orders")
        orders.offer("a", 1)
        delivery = orders.try_poll()
        assert delivery is not None
        delivery.bury("x")
        redrive = orders.dead_letters.start_redrive()
        orders.offer("a", 2, conn=theirs)
        held = app.store.lead("sweeper", "alice", timedelta(minutes=1))
        with pytest.raises(Refused, match="held what this needs for too long"):
            app.store.advance_redrive(redrive.id, lead=held)
        theirs.commit()
        app.store.advance_redrive(redrive.id, lead=held)
        assert (redrive.refresh().redriven, redrive.job.skipped) == (0, 1)
