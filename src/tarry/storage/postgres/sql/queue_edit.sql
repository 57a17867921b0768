-- Give a queue other settings; every process sees them with its next statement.
with made as (
    update tarry.queue
    set lease_for = make_interval(secs => %(lease_for)s), max_attempts = %(max_attempts)s::int,
        retry = %(retry)s::float8[], journal = %(journal)s::tarry.journal_level,
        retention_for = make_interval(secs => %(retention_for)s),
        target_lag_for = make_interval(secs => %(target_lag_for)s),
        updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null
    returning *
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_edited', updated_at, id, to_jsonb(made) - 'id' - 'created_at' - 'updated_at' - 'deleted_at' from made
)
select name, extract(epoch from lease_for)::float8, max_attempts, retry, journal::text,
    extract(epoch from retention_for)::float8, extract(epoch from target_lag_for)::float8, created_at, paused_at, paused_reason
from made
