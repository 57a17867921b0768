-- Extend the leader's lease: only with its fencing token, and only while the lease is valid.
update tarry.leader
set lease_until = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lead_for)s::interval
where name = %(name)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
returning name, holder, fence, lease_until
