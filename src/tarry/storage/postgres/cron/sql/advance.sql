-- How far a schedule is planned: the only columns that a scheduler changes. Where it still has the revision that was
-- read. A schedule that another transaction has locked is skipped, so that a long transaction does not delay the others;
-- callers that must wait for it have locked it before (cron/lock).
with wanted as materialized (
    select s.prefix, w.cursor_at, w.wake_at, w.ruled_at
    from unnest(%(prefixes)s::text[], %(expected)s::bigint[], %(cursors)s::timestamptz[], %(wakes)s::timestamptz[],
        %(ruled)s::timestamptz[]) as w(prefix, expected, cursor_at, wake_at, ruled_at)
    join tarry.schedule s on s.prefix = w.prefix and s.revision = w.expected
    order by s.prefix
    for update of s skip locked
)
update tarry.schedule s
set cursor_at = w.cursor_at, wake_at = w.wake_at, ruled_at = w.ruled_at, revision = nextval('tarry.version_seq')
from wanted w
where s.prefix = w.prefix
returning s.prefix, coalesce(s.ledger, s.prefix) as ledger
