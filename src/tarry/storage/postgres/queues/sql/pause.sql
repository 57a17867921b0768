-- Pause a queue (with a time) or resume it (without), effective with the next poll of any process. A repetition changes nothing
-- and is not journaled.
with made as (
    update tarry.queue
    set paused_at = case when %(paused)s then coalesce(%(now)s::timestamptz, clock_timestamp()) end,
        paused_reason = case when %(paused)s then %(reason)s::text end,
        updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null and (paused_at is not null) <> %(paused)s
    returning *
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select case when %(paused)s then 'queue_paused'::tarry.event_kind else 'queue_resumed' end, updated_at, id,
        jsonb_build_object('reason', paused_reason)
    from made
), notified as materialized (
    select pg_notify('tarry', made.name || '/' || w.type)
    from made join tarry.waiter w on w.queue = made.id
    where not %(paused)s and w.wakes_at + interval '1s' > coalesce(%(now)s::timestamptz, statement_timestamp())
)
select
    -- include: queues/_queue
    , (select count(*) from notified) as notified
from made
