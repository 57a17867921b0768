-- Become the leader where nobody is, or whoever was has let its lease run out. The fence grows with every change of hands.
-- Who writes as the leader holds this row in share mode until its statement is through, so hands change between writes.
-- Said twice by the same holder (an answer was lost) it is taken anew.
insert into tarry.leader as l (name, holder, fence, since_at, lease_until)
select %(name)s, %(holder)s, 1, t.now, t.now + %(lead_for)s::interval
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
on conflict (name) do update
set holder = excluded.holder, fence = l.fence + 1, since_at = excluded.since_at, lease_until = excluded.lease_until
where l.lease_until <= excluded.since_at or l.holder = excluded.holder
returning name, holder, fence, lease_until
