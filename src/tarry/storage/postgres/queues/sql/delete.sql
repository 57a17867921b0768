-- Mark a queue as deleted. Its row stays, because the journal refers to it; `remove_leftovers` removes its messages.
with gone as (
    update tarry.queue
    set deleted_at = coalesce(%(now)s::timestamptz, clock_timestamp()), has_leftovers = %(has_leftovers)s::boolean
    where name = %(name)s and deleted_at is null
    returning id, deleted_at
), noted as (
    insert into tarry.event (kind, at, queue) select 'queue_deleted', deleted_at, id from gone
)
select id from gone
