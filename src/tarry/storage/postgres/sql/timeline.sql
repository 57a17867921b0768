-- The life of one key, oldest first: ids are taken under the row lock, so they are its true order. The last `limit`.
select * from (
    select e.id, e.kind::text, e.at, q.name, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
        e.lease_until, e.consumer, e.size, e.payload_hash, e.payload, e.error, e.detail
    from tarry.queue q join tarry.event e on e.queue = q.id
    where q.name = %(queue)s and q.deleted_at is null and e.key = %(key)s
    order by e.id desc
    limit %(limit)s::int
) newest order by id
