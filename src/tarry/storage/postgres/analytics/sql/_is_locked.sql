-- Whether the run r has finished, or its advisory lock (analytics/lock) is held.
r.state <> 'running' or r.summary ->> 'lock' is null or exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
          and l.database = (select oid from pg_database where datname = current_database())
          and (l.classid::bigint << 32) | l.objid::bigint
              = hashtextextended('tarry.pipeline ' || (r.summary ->> 'lock'), 0)
    )
