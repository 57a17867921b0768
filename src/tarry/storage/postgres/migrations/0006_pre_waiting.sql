-- Who sleeps for which queue, and until when: an offer rings only for those who sleep for later than it is due. A hint,
-- never needed for correctness, so it is unlogged: renewing it waits for no disk, and a crash may forget it. One row per
-- process, queue and type ('' is any), renewed in place (HOT), without an index beyond its key. The row of a process that
-- was killed lapses by itself.
create unlogged table tarry.waiter (
    queue int not null,
    type text collate "C" not null,
    who text collate "C" not null,
    wakes_at timestamptz not null,
    renewed_at timestamptz not null default clock_timestamp(),
    primary key (queue, type, who)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);
