-- The point from which to continue after a failover that lost events before a position: the newest point of its timeline that
-- this server has; for a branch that this server never had, the newest of any earlier timeline.
select p.snapshot::text, p.branch, (p.lsn - '0/0'::pg_lsn)::bigint as lsn
from pg_control_system() s
join tarry.journal_point p on p.system_id = s.system_identifier::text
where p.timeline <> substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
  and p.timeline = coalesce((select k.timeline from tarry.journal_point k where k.branch = %(branch)s::bigint), p.timeline)
order by p.lsn desc
limit 1
