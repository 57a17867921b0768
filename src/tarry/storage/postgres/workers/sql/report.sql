-- Store the report of a worker and delete workers without recent reports. Rows that a concurrent report deletes are skipped, so
-- reports never wait for each other. The table is unlogged, with one row per worker. The release is stored in a logged table once
-- a minute: it later shows the release in which a message died.
with moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), gone as (
    delete from tarry.worker where id = any (array(
        select id from tarry.worker where seen_at < (select now from moment) - %(kept_for)s::interval and id <> %(id)s::text
        for update skip locked))
), noted as (
    insert into tarry.worker_release as r (consumer, release, first_at, last_at)
    select %(consumer)s::text, %(release)s::text, now, now from moment where %(release)s::text is not null
    on conflict (consumer, release) do update set last_at = excluded.last_at
    where r.last_at < excluded.last_at - %(noted_every)s::interval
), forgotten as (
    delete from tarry.worker_release where (consumer, release) in (
        select consumer, release from tarry.worker_release
        where last_at < (select now from moment) - %(releases_kept_for)s::interval and consumer <> %(consumer)s::text
        limit 100 for update skip locked)
)
insert into tarry.worker as w (id, consumer, host, pid, version, queues, concurrency, running, extensions, is_stopping, release, skew,
    started_at, seen_at)
select %(id)s::text, %(consumer)s::text, %(host)s::text, %(pid)s::bigint, %(version)s::text, %(queues)s::text[],
    %(concurrency)s::int, %(running)s::int, %(extensions)s::bigint, %(is_stopping)s::boolean, %(release)s::text,
    %(at)s::timestamptz - now, now, now
from moment
on conflict (id) do update
set running = excluded.running, extensions = excluded.extensions, is_stopping = excluded.is_stopping, skew = excluded.skew,
    seen_at = excluded.seen_at
returning w.drain_at is not null
