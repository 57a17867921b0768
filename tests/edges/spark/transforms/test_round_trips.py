"""A job builds its plan with few calls into the JVM: each costs a third of a millisecond, and a plan that is built of Python
columns needs thousands of them, which is then the time of a small job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import ClientServerConnection

from tarry.edges.spark.transforms import consumers, facts, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.registry import detected
from tests.edges.spark.anomalies.anomaly_kit import Journal, Scene, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "m\n"
"""What py4j sends when Python has forgotten an object, whenever that is."""


@dataclass
class Calls:
    commands: list[str] = field(default_factory=list[str])

    def of(self, work: Callable[[], Any]) -> int:
        before = len(self.commands)
        work()
        return len(self.commands) - before


@pytest.fixture
def calls(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls, send = Calls(), ClientServerConnection.send_command

    def counted(self: ClientServerConnection, command: str, *args: Any, **more: Any) -> Any:
        if not command.startswith(MEMORY):
            calls.commands.append(command)
        return send(self, command, *args, **more)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return calls


def test_a_transformation_is_one_query(spark: SparkSession, calls: Calls) -> None:
    events = seen(spark, Scene(Journal().add("offered"))).events
    sequence = tracing.sequenced(events)
    traced = tracing.traced(sequence)
    for transformation in (
        lambda: tracing.sequenced(events),
        lambda: tracing.traced(sequence),
        lambda: facts.fold(sequence),
        lambda: metrics.measured(traced),
        lambda: consumers.consumer_hours(traced),
    ):
        assert calls.of(transformation) <= 12


def test_a_detector_is_two_queries(spark: SparkSession, calls: Calls) -> None:
    """Its own, and the one that completes its rows; each argument of a query is four calls."""
    what = seen(spark, Scene(Journal().add("offered")))
    assert calls.of(lambda: detected(what, BUILT_IN)) <= 100 * len(BUILT_IN.names)
