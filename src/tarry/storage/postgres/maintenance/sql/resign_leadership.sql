-- Resign: the next caller acquires leadership. The row stays, because the fencing token must never restart.
update tarry.leader
set lease_until = least(lease_until, coalesce(%(now)s::timestamptz, clock_timestamp()))
where name = %(name)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
returning name, holder, fence, lease_until
