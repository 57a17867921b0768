-- Prepare an offer of several steps: the queue, the time, and one version per message. The update writes nothing. It takes a
-- writer's lock until the transaction ends, before the snapshot is taken: a deletion of the queue either waits for the following
-- steps, or came first, and the queue does not exist.
with writing as (
    update tarry.message set version = version where false
)
select q.id as queue, q.journal::text, coalesce(%(now)s::timestamptz, statement_timestamp()) as now,
    array(select nextval('tarry.version_seq') from generate_series(1, %(n)s::int)) as versions
from tarry.queue q
where q.name = %(queue)s and q.deleted_at is null and (q.max_depth is null or %(fits)s::boolean)
