-- Retire a queue that has no message left. Its row stays, because the journal refers to it.
with gone as (
    update tarry.queue
    set deleted_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null
    returning id, deleted_at
), noted as (
    insert into tarry.event (kind, at, queue) select 'queue_deleted', deleted_at, id from gone
)
select id from gone
