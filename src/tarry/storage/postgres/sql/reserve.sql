-- What an offer in several steps needs to know: the queue, the hour, and one version for each message.
select q.id, q.journal::text, coalesce(%(now)s::timestamptz, statement_timestamp()),
    array(select nextval('tarry.version_seq') from generate_series(1, %(n)s::int))
from tarry.queue q
where q.name = %(queue)s and q.deleted_at is null
