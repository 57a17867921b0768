-- For `earliest`: the number of rows that were the earliest of their key until a later row was earlier still. As in
-- `offer_many`, these count as superseded; the other rows that were not chosen count as ignored.
select count(*) filter (where is_record) - count(*) filter (where is_first)
from (
    select row_number() over life = 1 as is_first,
        t.due_at < coalesce(min(t.due_at) over (life rows between unbounded preceding and 1 preceding), 'infinity') as is_record
    from tarry.sink_row r
    cross join lateral (
        select coalesce(r.due_at, %(now)s::timestamptz + make_interval(secs => r.after_s)) as due_at) t
    where r.attempt = any (%(attempts)s::bigint[])
    window life as (partition by r.queue, r.key order by r.part, r.seq)
) ranked
