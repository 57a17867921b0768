-- Store how far schedules are planned, the only columns that a scheduler changes, if their revision is still the one that was
-- read. A schedule that another transaction has locked is skipped, so that a long transaction does not delay the others; callers
-- that must wait for it have locked it before (cron/lock).
with wanted as materialized (
    select s.name, w.cursor_at, w.wake_at, w.decided_at
    from unnest(%(names)s::text[], %(expected)s::bigint[], %(cursors)s::timestamptz[], %(wakes)s::timestamptz[],
        %(decided)s::timestamptz[]) as w(name, expected, cursor_at, wake_at, decided_at)
    join tarry.schedule s on s.name = w.name and s.revision = w.expected
    order by s.name
    for update of s skip locked
)
update tarry.schedule s
set cursor_at = w.cursor_at, wake_at = w.wake_at, decided_at = w.decided_at, revision = nextval('tarry.version_seq')
from wanted w
where s.name = w.name
returning s.name, coalesce(s.ledger, s.name) as ledger
