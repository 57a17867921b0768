-- Give a queue other settings; every process sees them with its next statement. Only those named are touched, so two who
-- edit different ones at the same moment both get what they asked for.
with made as (
    update tarry.queue
    set lease_for = case when 'lease_for' = any (%(only)s::text[])
            then make_interval(secs => %(lease_for)s) else lease_for end,
        max_attempts = case when 'max_attempts' = any (%(only)s::text[]) then %(max_attempts)s::int else max_attempts end,
        retry = case when 'retry' = any (%(only)s::text[]) then %(retry)s::float8[] else retry end,
        journal = case when 'journal' = any (%(only)s::text[]) then %(journal)s::tarry.journal_level else journal end,
        retention_for = case when 'retention_for' = any (%(only)s::text[])
            then make_interval(secs => %(retention_for)s) else retention_for end,
        target_lag_for = case when 'target_lag_for' = any (%(only)s::text[])
            then make_interval(secs => %(target_lag_for)s) else target_lag_for end,
        updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null
    returning *
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_edited', updated_at, id, to_jsonb(made) - 'id' - 'created_at' - 'updated_at' - 'deleted_at' - 'former_names' from made
)
select name, extract(epoch from lease_for)::float8, max_attempts, retry, journal::text,
    extract(epoch from retention_for)::float8, extract(epoch from target_lag_for)::float8, created_at, paused_at, paused_reason
from made
