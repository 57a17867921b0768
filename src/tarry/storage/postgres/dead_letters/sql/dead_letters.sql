-- Dead letters of a queue that match a filter, newest first, after a position. Relies on dead_letter_order,
-- dead_letter_group for one fingerprint, or the primary key. The scan is bounded. Each branch has a condition on the
-- queue that only one index supports: no plan can use the wrong one.
with q as materialized (
    select id, name from tarry.queue where name = %(queue)s and deleted_at is null
)
select q.name as queue, d.key, d.payload, d.version, d.attempt, d.priority, d.due_at, d.created_at, d.died_at, d.reason, d.error, d.type,
    d.headers, d.content_type, d.fingerprint, d.consumer, d.origin
from q left join lateral (
    select w.* from (
        (select * from tarry.dead_letter
         where %(versions)s::bigint[] is null and %(fingerprint)s::text is null and queue = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity') and (died_at, version) < (coalesce(%(before_at)s::timestamptz, 'infinity'), coalesce(%(before_version)s::bigint, 0))
         order by died_at desc, version desc limit %(walk)s::int)
        union all
        (select * from tarry.dead_letter
         where %(versions)s::bigint[] is null and fingerprint = %(fingerprint)s::text and (queue + 0) = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity') and (died_at, version) < (coalesce(%(before_at)s::timestamptz, 'infinity'), coalesce(%(before_version)s::bigint, 0))
         order by died_at desc, version desc limit %(walk)s::int)
        union all
        (select named.* from (select distinct unnest(%(versions)s::bigint[]) as version) v
         cross join lateral (select * from tarry.dead_letter where version = v.version offset 0) named
         where named.queue = q.id and (%(fingerprint)s::text is null or named.fingerprint = %(fingerprint)s)
           and named.died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and named.died_at < coalesce(%(died_to)s::timestamptz, 'infinity') and (named.died_at, named.version) < (coalesce(%(before_at)s::timestamptz, 'infinity'), coalesce(%(before_version)s::bigint, 0))
         order by named.died_at desc, named.version desc limit %(walk)s::int)
    ) w
    where (%(type)s::text is null or w.type = %(type)s)
      and (%(key_prefix)s::text is null or starts_with(w.key, %(key_prefix)s))
    order by w.died_at desc, w.version desc limit %(limit)s::int
) d on true
order by d.died_at desc, d.version desc
