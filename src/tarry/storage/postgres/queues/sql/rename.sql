-- Rename a queue. Messages and history refer to its id; schedules and ledgers are updated. No row if the queue does not exist
-- or the new name is taken (the unique index decides races).
with made as (
    update tarry.queue
    set name = %(new_name)s, former_names = (former_names || %(name)s::text)[greatest(cardinality(former_names) - 8, 1):],
        updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    where name = %(name)s and deleted_at is null
      and not exists (select from tarry.queue where name = %(new_name)s and deleted_at is null)
    returning *
), followed as (
    update tarry.schedule s set queue = made.name, revision = nextval('tarry.version_seq') from made
    where s.queue = %(name)s
), kept as (
    update tarry.ledger l set queue = made.name from made where l.queue = %(name)s
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_renamed', updated_at, id, jsonb_build_object('from', %(name)s::text, 'to', name) from made
)
select
    -- include: queues/_queue
from made
