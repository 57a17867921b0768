-- The queues that a sweep may change: with an expired lease or an exhausted message among the first hundred due messages of a
-- priority, or with a hundred due messages. It only reads, so many idle queues cost one statement and no commit.
select q.name
from tarry.queue q
where q.name = any (%(queues)s::text[]) and q.deleted_at is null and q.paused_at is null
  and exists (
    select from generate_series(0, 9) as level(priority)
    cross join lateral (
        select count(*) as n, bool_or(c.lease_until <= coalesce(%(now)s::timestamptz, statement_timestamp())
            and ((c.token is not null and c.expired_at is null)
                or c.attempt >= coalesce(c.max_attempts, c.policy_max_attempts, q.max_attempts, 2147483647))) as stuck
        from (
            select m.lease_until, m.token, m.expired_at, m.attempt, m.max_attempts, m.policy_max_attempts
            from tarry.message m
            where (m.queue + 0) = q.id and m.priority = level.priority::smallint
              and m.due_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
            order by m.due_at, m.version
            limit 100
        ) c
    ) first
    where first.stuck or first.n = 100)
