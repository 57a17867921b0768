-- The last leader of every name, current if its lease has not expired.
select name, holder, fence, lease_until from tarry.leader
order by name limit 100
