-- How far the write-ahead log was when positions of the journal were given out, written and committed before each of them.
-- A standby that was promoted has the rows that it had received, and no others: so it has everything up to the highest
-- `lsn` of an earlier timeline, and a position beyond that belongs to a history that was lost.
-- Writers never wait for each other: each takes a row that is free, or adds one. `branch` is random, so that two standbys
-- that were promoted to timelines of the same number are told apart.
create table tarry.journal_point (
    branch bigint primary key,
    system_id text not null,
    timeline text not null,
    lsn pg_lsn not null,
    snapshot pg_snapshot not null
) with (fillfactor = 50);

-- Whether this server may lack something that was committed before a position: the position was given out on another
-- timeline, and nothing shows that the log up to there was received. Positions of older versions have no branch: they are
-- believed for as long as no other timeline is known.
create function tarry.journal_is_lost(of_branch bigint, at_lsn pg_lsn) returns boolean language sql stable as $$
    select case
        when pg_is_in_recovery() then false
        when of_branch is null then exists (
            select from pg_control_system() s join tarry.journal_point p on p.system_id = s.system_identifier::text
            where p.timeline <> substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))
        else not exists (
            select from pg_control_system() s join tarry.journal_point p on p.system_id = s.system_identifier::text
            where p.branch = of_branch
              and (p.timeline = substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
                or at_lsn <= (select max(o.lsn) from tarry.journal_point o
                    where o.system_id = p.system_id and o.timeline = p.timeline)))
    end
$$;
