-- Dead letters of a queue that fit a filter, the newest first. Relies on dead_letter_order, dead_letter_group for one
-- fingerprint, or the primary key. The walk is bounded, so that looking cannot hurt.
with q as materialized (
    select id, name from tarry.queue where name = %(queue)s and deleted_at is null
)
select q.name, d.key, d.payload, d.version, d.attempt, d.priority, d.due_at, d.died_at, d.reason, d.error, d.type,
    d.headers, d.content_type, d.fingerprint, d.consumer, d.origin
from q left join lateral (
    select w.* from (
        (select * from tarry.dead_letter
         where %(versions)s::bigint[] is null and %(fingerprint)s::text is null and queue = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by died_at desc, version desc limit %(walk)s::int)
        union all
        (select * from tarry.dead_letter
         where %(versions)s::bigint[] is null and fingerprint = %(fingerprint)s::text and queue = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by died_at desc, version desc limit %(walk)s::int)
        union all
        (select * from tarry.dead_letter
         where version = any (%(versions)s::bigint[]) and queue = q.id
           and (%(fingerprint)s::text is null or fingerprint = %(fingerprint)s)
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by died_at desc, version desc limit %(walk)s::int)
    ) w
    where (%(type)s::text is null or w.type = %(type)s)
      and (%(key_prefix)s::text is null or starts_with(w.key, %(key_prefix)s))
    order by w.died_at desc, w.version desc limit %(limit)s::int
) d on true
order by d.died_at desc, d.version desc
