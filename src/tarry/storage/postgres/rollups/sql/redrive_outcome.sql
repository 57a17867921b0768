-- The outcome of the messages that a redrive job has revived: their versions are newer than the job, and the versions that they
-- were redriven from are older. A concurrent job of the same queue is not distinguished. At most `limit` dead letters and live
-- messages since the start of the job are read. Relies on dead_letter_order and message_order.
select again.n as died_again, again.walked as walked_dead, live.n as live, live.walked as walked_live
from tarry.redrive_job j
cross join lateral (
    select count(*) as walked, count(*) filter (where d.origin < j.before_version and d.version > j.before_version) as n
    from (select version, origin from tarry.dead_letter where queue = coalesce(j.target, j.queue) and died_at >= j.created_at
          order by died_at, version limit %(limit)s::int) d
) again
cross join lateral (
    select count(*) as walked, count(*) filter (where m.origin < j.before_version and m.version > j.before_version) as n
    from (select m.version, m.origin from generate_series(0, 9) as level(priority) cross join lateral (
              select version, origin from tarry.message
              where (queue + 0) = coalesce(j.target, j.queue) and priority = level.priority::smallint and due_at >= j.created_at
              order by due_at, version limit %(limit)s::int
          ) m limit %(limit)s::int) m
) live
where j.id = %(job)s
