"""The data source reads what plain SQL reads: every table, any columns, any filter, in any number of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

import tarry
from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import JournalLevel
from tarry.edges.spark.schemas import TABLES
from tarry.edges.spark.source.options import parse
from tarry.edges.spark.source.reader import register
from tests.kit.servers import Server
from tests.kit.spark import rows_of, write_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAIN: dict[str, LiteralString] = {
    "events": """select e.id, e.xid::text::bigint, e.at, e.kind::text, e.queue, q.name, e.key, e.version, e.attempt,
        e.priority, e.due_at, e.leased_at, e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail::text,
        e.payload from tarry.event e join tarry.queue q on q.id = e.queue""",
    "messages": """select m.queue, q.name, m.key, m.version, tarry.message_state(m, now()), m.attempt, m.priority,
        m.due_at, m.created_at, nullif(m.lease_until, '-infinity'), case when m.token is not null then m.consumer end,
        m.type, m.content_type, m.headers::text, m.last_error, m.payload
        from tarry.message m join tarry.queue q on q.id = m.queue""",
    "dead_letters": """select m.queue, q.name, m.key, m.version, m.attempt, m.priority, m.due_at, m.died_at, m.reason,
        m.error, m.type, m.content_type, m.headers::text, m.payload
        from tarry.dead_letter m join tarry.queue q on q.id = m.queue""",
}
AWKWARD = [
    "it's",
    'a "quoted" key',
    "back\\slash",
    "semi;colon--",
    "Grüße",
    "雪",
    "%s %(x)s {}",
    "\x1f|\t\n",
    "~" * 200,
]


@pytest.fixture(scope="module")
def stocked(server: Server) -> Iterator[str]:
    """A database in which every kind of thing has happened to messages with every kind of name."""
    dsn = server.new_database()
    with tarry.connect(dsn, consumer="tester") as app:
        _live(app)
    yield dsn
    server.drop_database(dsn)


def _live(app: App) -> None:
    orders = app.queue("orders")
    app.queues.create("secrets", tarry.QueueSettings(journal=JournalLevel.PAYLOADS, max_attempts=1))
    orders.offer_many([tarry.Message(payload={"n": i}, key=f"k{i}", priority=i % 10) for i in range(300)])
    for key in AWKWARD:
        orders.offer(key, {"text": key}, type="odd", headers={"a": key})
    orders.offer("later", 1, after=timedelta(days=3))
    for delivery in orders.try_poll_many(120):
        delivery.ack()
    for delivery in orders.try_poll_many(40):
        delivery.nack("it's broken", after=timedelta(hours=1))
    orders.try_poll_many(10)
    secrets = app.queue("secrets")
    secrets.offer_many([tarry.Message(payload="x" * i, key=f"s{i}") for i in range(50)])
    for delivery in secrets.try_poll_many(30):
        delivery.nack("dead")


@pytest.fixture(scope="module")
def source(spark: SparkSession, stocked: str) -> Any:
    register(spark)

    def read(table: str = "events", **options: Any) -> DataFrame:
        return spark.read.format("tarry").options(dsn=stocked, table=table, **options).load()

    return read


def queried(dsn: str, query: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query).fetchall()


def normal(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Instants and bytes have more than one Python type; their values are compared."""

    def text(value: Any) -> str:
        if isinstance(value, datetime):
            return (value.astimezone(UTC) if value.tzinfo else value.astimezone().astimezone(UTC)).isoformat()
        return repr(bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else repr(value)

    return sorted(tuple(map(text, row)) for row in rows)


@pytest.mark.parametrize("table", list(TABLES))
@pytest.mark.parametrize("partitions", [None, 3])
def test_every_table_has_the_rows_that_sql_finds(source: Any, stocked: str, table: str, partitions: int | None) -> None:
    frame = source(table, **({} if partitions is None else {"partitions": partitions}))
    assert frame.schema == TABLES[table]
    expected = queried(stocked, PLAIN[table])
    assert len(expected) > 20
    assert normal(rows_of(frame)) == normal(expected)


@pytest.mark.parametrize("table", ["events", "messages"])
def test_only_the_requested_columns_come_in_the_requested_order(source: Any, stocked: str, table: str) -> None:
    frame = source(table, columns="key, version,queue")
    assert frame.columns == ["key", "version", "queue"]
    expected = [(row[i], row[j], row[k]) for row in queried(stocked, PLAIN[table]) for i, j, k in [_scans(table)]]
    assert normal(rows_of(frame)) == normal(expected)


def _scans(table: str) -> tuple[int, int, int]:
    names = TABLES[table].names
    return names.index("key"), names.index("version"), names.index("queue")


def test_a_declared_schema_is_as_good_as_the_option_columns(spark: SparkSession, stocked: str) -> None:
    frame = spark.read.format("tarry").schema("kind string, id long").option("dsn", stocked).load()
    assert normal(rows_of(frame)) == normal([(row[3], row[0]) for row in queried(stocked, PLAIN["events"])])


LEFT_TO_THE_DATABASE = (
    "kind in ('acked', 'nacked') and id > 50 and at >= timestamp'2020-01-01T00:00:00Z' and queue <> 'x' "
    "and error is null and key like 'k%' and attempt <=> 1"
)
LEFT_TO_SPARK = "(kind = 'acked' or priority > 7) and id % 2 = 0 and key like 'k_2%' and detail is null"


def test_filters_give_the_same_rows_wherever_they_are_applied(source: Any) -> None:
    condition = f"{LEFT_TO_THE_DATABASE} and not ({LEFT_TO_SPARK})"
    columns = "id,at,kind,queue,key,attempt,priority,error,detail"
    pushed = rows_of(source(columns=columns).where(condition))
    applied = rows_of(source(columns=columns, pushdown="false").where(condition))
    assert len(pushed) > 20
    assert normal(pushed) == normal(applied)


def test_the_database_applies_what_it_can_decide(source: Any) -> None:
    def filters_left(condition: Any) -> bool:
        plan = (
            source(columns="id,kind,detail,at,queue,key,error,attempt,priority")
            .where(condition)
            ._jdf.queryExecution()
            .executedPlan()
            .toString()
        )
        return "Filter (" in plan

    assert not filters_left(LEFT_TO_THE_DATABASE)
    assert filters_left(LEFT_TO_SPARK)


def test_since_and_until_are_a_half_open_range(source: Any, stocked: str) -> None:
    instants = sorted({row[2] for row in queried(stocked, PLAIN["events"])})
    since, until = instants[1], instants[-1]
    frame = source(columns="at", since=since.isoformat(), until=until.isoformat())
    expected = [(row[2],) for row in queried(stocked, PLAIN["events"]) if since <= row[2] < until]
    assert normal(rows_of(frame)) == normal(expected)


def test_partitions_of_the_journal_balance(spark: SparkSession, database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as conn:
        app.queues.create("many")
        write_events(conn, 100_000, queue="many")
    register(spark)
    frame = spark.read.format("tarry").options(dsn=database, columns="id", partitions=3).load()
    sizes = [row[1] for row in frame.groupBy(F.spark_partition_id()).count().collect()]
    assert sum(sizes) == 100_001
    assert len(sizes) == 3
    assert max(sizes) < 1.6 * min(sizes)


def test_without_registration_spark_finds_the_source_by_its_module(spark: SparkSession, stocked: str) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    frame = other.read.format("tarry").options(dsn=stocked, columns="id,kind").load()
    assert frame.where("kind = 'acked'").count() == 120


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "event"}, "option table is one of events, messages, dead_letters"),
        ({"columns": "id,nope"}, "events has no column 'nope'"),
        ({"columns": " , "}, "names no column"),
        ({"columns": "id,id"}, "twice"),
        ({"colums": "id"}, "no option 'colums'"),
        ({"partitions": "0"}, "option partitions is a whole number above 0"),
        ({"since": "yesterday"}, "option since is an instant like"),
        ({"since": "2026-11-15T00:00:00"}, "has no time zone"),
        ({"since": "2026-11-15T00:00:00Z", "until": "2026-11-14T00:00:00Z"}, "lies before since"),
        ({"pushdown": "maybe"}, "true or false"),
    ],
)
def test_a_bad_option_is_rejected_with_one_sentence(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse({"dsn": "dbname=x", **options})


def test_spark_shows_the_sentence_to_its_user(source: Any) -> None:
    with pytest.raises(AnalysisException, match="there is no option 'colums' for reading tarry; there are: dsn, table"):
        source(colums="id")


def test_a_declared_column_of_another_type_is_refused(spark: SparkSession, stocked: str) -> None:
    with pytest.raises(Exception, match="column id of events is bigint, not string"):
        spark.read.format("tarry").schema("id string").option("dsn", stocked).load().collect()


def test_without_an_address_the_error_names_how_to_give_one(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(AnalysisException, match="no database is given"):
        spark.read.format("tarry").load()


def test_an_address_without_a_server_is_reported_as_such(spark: SparkSession) -> None:
    register(spark)
    frame = spark.read.format("tarry").option("dsn", "host=127.0.0.1 port=1 dbname=x").load()
    with pytest.raises(Exception, match="the database cannot be reached"):
        frame.collect()
