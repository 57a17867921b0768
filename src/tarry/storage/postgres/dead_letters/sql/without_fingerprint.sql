-- Dead letters without a fingerprint, of one queue or of any: buried with the error of an earlier attempt, which the
-- statement did not fingerprint. Only the end of a traceback is read. Relies on dead_letter_group.
select d.version, d.reason, case when starts_with(d.error, 'Traceback (most recent call last):')
        then 'Traceback (most recent call last):' || right(E'\n' || d.error, %(read)s::int) else left(d.error, %(read)s::int) end as error
from tarry.queue q cross join lateral (
    select * from tarry.dead_letter where (queue + 0) = q.id and fingerprint is null limit %(limit)s::int
) d
where q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
limit %(limit)s::int
