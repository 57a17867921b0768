-- The current leader, if any.
select name, holder, fence, lease_until from tarry.leader
where name = %(name)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
