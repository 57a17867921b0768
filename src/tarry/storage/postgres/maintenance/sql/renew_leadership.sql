-- Stay the leader for longer: only under the number that was given, and only while the lease still runs.
update tarry.leader
set lease_until = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lead_for)s::interval
where name = %(name)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
returning name, holder, fence, lease_until
