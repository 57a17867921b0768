-- The number of dead letters that match a filter, and of those that cannot be redriven because their key is live. At most `walk`
-- letters are read, oldest first; the last of them only shows that there are more. Each branch has a condition on the queue that
-- only one index supports: no plan can use the wrong one.
with q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
), walked as materialized (
    select w.key, w.type from q cross join lateral (
        (select key, type from tarry.dead_letter
         where %(versions)s::bigint[] is null and %(fingerprint)s::text is null and queue = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by died_at, version limit %(walk)s::int)
        union all
        (select key, type from tarry.dead_letter
         where %(versions)s::bigint[] is null and fingerprint = %(fingerprint)s::text and (queue + 0) = q.id
           and died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by died_at, version limit %(walk)s::int)
        union all
        (select named.key, named.type from (select distinct unnest(%(versions)s::bigint[]) as version) v
         cross join lateral (select * from tarry.dead_letter where version = v.version offset 0) named
         where named.queue = q.id and (%(fingerprint)s::text is null or named.fingerprint = %(fingerprint)s)
           and named.died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
           and named.died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
         order by named.died_at, named.version limit %(walk)s::int)
    ) w
), fitting as materialized (
    select w.key, exists (select from tarry.message m where m.key = w.key and m.queue = q.id) as live
    from q cross join walked w
    where (%(type)s::text is null or w.type = %(type)s)
      and (%(key_prefix)s::text is null or starts_with(w.key, %(key_prefix)s))
)
select jsonb_build_object(
        'n', least((select count(*) from fitting), %(walk)s::bigint - 1),
        'capped', (select count(*) from walked) = %(walk)s::bigint) as letters,
    least((select count(*) from fitting where live), %(walk)s::bigint - 1) as blocked
from q
