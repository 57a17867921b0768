-- Change queue settings; every process uses them from its next statement on. Only the named settings change, so concurrent edits
-- of different settings are both kept.
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
        max_depth = case when 'max_depth' = any (%(only)s::text[]) then %(max_depth)s::int else max_depth end,
        description = case when 'description' = any (%(only)s::text[]) then %(description)s::text else description end,
        handler_max_attempts = case when 'handler_max_attempts' = any (%(only)s::text[])
            then %(handler_max_attempts)s::int else handler_max_attempts end,
        updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null
    returning *
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_edited', updated_at, id, to_jsonb(made) - 'id' - 'created_at' - 'updated_at' - 'deleted_at' - 'has_leftovers' - 'former_names' from made
)
select
    -- include: queues/_queue
from made
