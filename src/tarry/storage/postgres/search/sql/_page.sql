-- The page of a search with its scan totals: always at least one row. Long payloads are not read.
select (select count(*) from scanned)::int as scanned, (select count(*) from matching)::int as matched,
    h.due_at as horizon_due_at, h.version as horizon_version, p.*
from moment left join horizon h on true
left join lateral (
    select case when %(payloads)s::boolean and octet_length(m.payload) <= %(longest)s::int then m.payload else '' end as payload,
        -- include: messages/_message
    from (select * from matching order by due_at, version limit %(limit)s::int) x
    cross join lateral (
        select m.*, tarry.message_state(m, moment.now) as state
        from tarry.message m where m.key = x.key and m.queue = x.queue
    ) m
    join q on q.id = m.queue
) p on true
order by p.due_at, p.version
