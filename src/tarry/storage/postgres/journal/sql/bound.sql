-- A snapshot of everything that is committed and flushed, here and on a synchronous standby if configured. Leases commit without
-- waiting: a crash or failover could lose events that a reader has seen and reuse their transaction ids for new events, which the
-- reader would skip. So this writes the current WAL position and waits for its own commit, which makes all earlier commits
-- durable. tarry.journal_is_lost decides whether a promoted standby has them. Never waits for another writer: takes a free row of
-- this timeline, or adds one.
with here as materialized (
    select s.system_identifier::text as system_id, pg_current_snapshot() as snapshot, pg_current_wal_insert_lsn() as lsn,
        substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) as timeline
    from pg_control_system() s
), free as materialized (
    select p.branch
    from tarry.journal_point p
    where p.system_id = (select system_id from here) and p.timeline = (select timeline from here)
    limit 1
    for update skip locked
), moved as (
    update tarry.journal_point p
    set lsn = greatest(p.lsn, here.lsn), snapshot = case when here.lsn >= p.lsn then here.snapshot else p.snapshot end
    from here
    where p.branch = (select branch from free)
    returning p.branch
), added as (
    insert into tarry.journal_point (branch, system_id, timeline, lsn, snapshot)
    select hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807, system_id, timeline, lsn, snapshot
    from here
    where not exists (select from moved)
    returning branch
)
select here.snapshot::text, here.system_id || '.' || d.oid::text as journal,
    (select branch from moved union all select branch from added) as branch,
    (here.lsn - '0/0'::pg_lsn)::bigint as lsn,
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
from here cross join pg_database d
where d.datname = current_database()
