-- Create a queue; no row if the name is taken. Its settings are journaled, since the journal level decides whether its messages
-- can be derived from the journal.
with made as (
    insert into tarry.queue (name, lease_for, max_attempts, retry, journal, retention_for, target_lag_for, max_depth,
        description, handler_max_attempts, created_at, updated_at)
    select %(name)s, make_interval(secs => %(lease_for)s), %(max_attempts)s::int, %(retry)s::float8[],
        %(journal)s::tarry.journal_level, make_interval(secs => %(retention_for)s),
        make_interval(secs => %(target_lag_for)s), %(max_depth)s::int, %(description)s::text,
        %(handler_max_attempts)s::int, t.now, t.now
    from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
    on conflict (name) where deleted_at is null do nothing
    returning *
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_created', created_at, id, to_jsonb(made) - 'id' - 'created_at' - 'updated_at' - 'deleted_at' - 'has_leftovers' - 'former_names' from made
)
select
    -- include: queues/_queue
from made
