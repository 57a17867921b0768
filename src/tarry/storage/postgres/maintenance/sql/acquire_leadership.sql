-- Acquire leadership if there is no leader or its lease has expired. The fencing token grows with every new leader. A write of
-- the leader locks this row in share mode until its transaction ends, so leadership passes between writes. The same holder may
-- acquire it again (after a lost response).
insert into tarry.leader as l (name, holder, fence, since_at, lease_until)
select %(name)s, %(holder)s, 1, t.now, t.now + %(lead_for)s::interval
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
on conflict (name) do update
set holder = excluded.holder, fence = l.fence + 1, since_at = excluded.since_at, lease_until = excluded.lease_until
where l.lease_until <= excluded.since_at or l.holder = excluded.holder
returning name, holder, fence, lease_until
