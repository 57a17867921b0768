# pyright: basic
"""Simulate job: replay recorded messages in a model with other workers, retries or load.

The model first has to reproduce the recording. Each queue and each run of the model is one Spark task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.simulation import Arrival, Course, Delivered, Scenario, course, difference, simulate
from tarry.core.errors import InvalidInput, InvalidState, UnknownQueue
from tarry.core.messages.retry import Retry
from tarry.core.settings import QueueSettings
from tarry.edges.spark.jobs.facts import read_facts
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import FrameLayout
from tarry.edges.spark.transforms.forecast import calibrated
from tarry.edges.spark.transforms.query import query, sql

JOB = "simulate"
MOST = 2_000_000
"""Maximum number of messages per queue: one task holds them in memory, about 300 bytes each."""
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateArgs:
    queues: tuple[str, ...]
    lake: str | None = None
    until: datetime | None = None
    """End of the recording; None: now."""
    back_for: timedelta = timedelta(hours=24)
    workers: int | None = None
    """None: the number that worked at the same time in the recording."""
    workers_factor: float = 1.0
    retry: Retry | None = None
    """None: the queue's policy."""
    max_attempts: int | None = None
    rate: float = 1.0
    seeds: int = 1
    """Number of runs of the model, each with another seed."""
    tolerance: float = 0.25
    """Maximum deviation from the recording for a trustworthy result."""

    def __post_init__(self) -> None:
        if not self.queues:
            raise InvalidInput("simulate needs a queue")
        if not 1 <= self.seeds <= 100:
            raise InvalidInput(f"seeds must be between 1 and 100, got {self.seeds}")
        Scenario(workers=1 if self.workers is None else self.workers, rate=self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedQueue:
    queue: str
    since: datetime
    until: datetime
    workers: int
    """Leases held at the same time while messages waited; see calibrated.sql."""
    service_s: float
    recorded: Course
    reproduced: Course
    error: float
    """Largest relative deviation between the two."""
    error_of: str
    is_reproduced: bool
    scenario: Scenario
    simulated: tuple[Course, ...]
    """One per seed."""

    @property
    def median(self) -> Course:
        """The run with the median p95 of the lag."""
        return sorted(self.simulated, key=lambda run: run.lag.p95)[len(self.simulated) // 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateSummary:
    queues: tuple[SimulatedQueue, ...]

    @property
    def ok(self) -> bool:
        return all(queue.is_reproduced for queue in self.queues)


@own_session
def run(spark: SparkSession, app: App, args: SimulateArgs) -> SimulateSummary:
    until = args.until or app.store.run(app.store.queues.now())
    since = until - args.back_for
    names = app.pipeline.analytics.queue_names()
    ids = {id: names[id].name for id in map(app.pipeline.analytics.queue_id, args.queues)}
    facts = read_facts(spark, args.lake).where(
        f"queue_id in ({', '.join(map(str, ids))}) and greatest(due_at, offered_at) >= timestamp '{since.isoformat()}' "
        f"and greatest(due_at, offered_at) < timestamp '{until.isoformat()}'"
    )
    with FrameLayout().keeping() as kept:
        stored = kept(facts)
        known = {row.queue_id: row for row in calibrated(stored).collect()}
        settings: dict[int, tuple[Scenario, list[Scenario]]] = {}
        for queue_id, queue in ids.items():
            if queue_id not in known:
                raise InvalidState(
                    f"nothing was processed in queue {queue} between {since:%Y-%m-%d %H:%M} and {until:%Y-%m-%d %H:%M} UTC",
                    hint="run first: tarry pipeline run; or choose another time: --last 7d",
                )
            messages = round(known[queue_id].messages * max(args.rate, 1))
            if messages > MOST:
                raise InvalidState(
                    f"queue {queue} has {messages:,} messages in this time at this rate, and a model at most {MOST:,}",
                    hint="choose a shorter time: --last 1h",
                )
            settings[queue_id] = _scenarios(app, queue, known[queue_id].workers, args)
        tasks = [(queue_id, n) for queue_id in ids for n in range(args.seeds + 1)]
        plan = ", ".join(f"({queue_id}, {n})" for queue_id, n in tasks)
        arrivals = query(sql("arrivals"), {"since_us": (since - _EPOCH) // timedelta(microseconds=1)}, facts=stored)
        planned = arrivals.join(spark.sql(f"select * from values {plan} as plan(queue_id, task)"), "queue_id")  # noqa: S608
        results = (
            planned.repartition(len(tasks), "queue_id", "task")
            .groupBy("queue_id", "task")
            .applyInArrow(_modelled(settings), "queue_id int, task int, recorded string, simulated string")
            .collect()
        )
    by_task = {(row.queue_id, row.task): row for row in results}
    if unended := [queue for queue_id, queue in ids.items() if (queue_id, 0) not in by_task]:
        raise InvalidState(
            f"no message of queue {unended[0]} between {since:%Y-%m-%d %H:%M} and {until:%Y-%m-%d %H:%M} UTC has ended",
            hint="choose another time: --last 7d",
        )

    def decoded(queue_id: int, task: int, name: str) -> Course:
        return msgspec.json.decode(by_task[queue_id, task][name], type=Course)

    def result(queue_id: int, queue: str) -> SimulatedQueue:
        recorded, reproduced = decoded(queue_id, 0, "recorded"), decoded(queue_id, 0, "simulated")
        workers, service_s = known[queue_id].workers, known[queue_id].service_s
        error, error_of = difference(recorded, reproduced, service_s)
        return SimulatedQueue(
            queue=queue,
            since=since,
            until=until,
            workers=workers,
            service_s=service_s,
            recorded=recorded,
            reproduced=reproduced,
            error=error,
            error_of=error_of,
            is_reproduced=error <= args.tolerance,
            scenario=settings[queue_id][1][0],
            simulated=tuple(decoded(queue_id, task, "simulated") for task in range(1, args.seeds + 1)),
        )

    return SimulateSummary(queues=tuple(result(*item) for item in ids.items()))


def _scenarios(app: App, queue: str, seen: int, args: SimulateArgs) -> tuple[Scenario, list[Scenario]]:
    """The scenario of the recording, and one per seed with the changes."""
    try:
        stored = app.queues.get(queue).settings
    except UnknownQueue:  # deleted
        stored = QueueSettings()
    recorded = Scenario(
        workers=seen,
        retry=stored.retry,
        max_attempts=stored.handler_max_attempts or stored.max_attempts,
        lease_for_s=stored.lease_for.total_seconds(),
    )
    workers = max(1, round((args.workers or seen) * args.workers_factor))
    variant = replace(
        recorded,
        workers=workers,
        retry=args.retry or recorded.retry,
        max_attempts=args.max_attempts or recorded.max_attempts,
        rate=args.rate,
    )
    return recorded, [replace(variant, seed=seed) for seed in range(1, args.seeds + 1)]


def _modelled(settings: Mapping[int, tuple[Scenario, list[Scenario]]]) -> Callable[..., pa.Table]:
    """The function that models one queue with one scenario in a task. Task 0 is the recording."""

    def model(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        queue_id, task = (part.as_py() for part in key)
        recorded, variant = settings[queue_id]
        arrivals: list[Arrival] = []
        happened: list[Delivered] = []
        for row in table.to_pylist():
            arrivals.append(Arrival(*(row[name] for name in Arrival._fields)))
            end = row["leaves_s"] if row["leaves_s"] < inf else row["end_s"]
            happened.append(Delivered(row["at_s"], row["start_s"], end, row["worked_s"] or 0.0, row["is_dead"]))
        opens = min((of.start_s for of in happened if of.start_s is not None), default=0.0)
        scenario = replace(recorded if task == 0 else variant[task - 1], opens_s=opens)
        before = course(happened, recorded.workers) if task == 0 else None
        texts = [msgspec.json.encode(of).decode() for of in (before, simulate(arrivals, scenario))]
        return pa.table({"queue_id": pa.array([queue_id], pa.int32()), "task": pa.array([task], pa.int32()),
                         "recorded": [texts[0]], "simulated": [texts[1]]})  # fmt: skip

    return model
