-- Dead letters without a fingerprint, of one queue or of any: buried with the error of an earlier attempt, which the
-- statement did not fingerprint. Relies on dead_letter_group.
select d.version, d.reason, left(d.error, %(read)s::int) as error
from tarry.queue q cross join lateral (
    select * from tarry.dead_letter where (queue + 0) = q.id and fingerprint is null limit %(limit)s::int
) d
where q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
limit %(limit)s::int
