-- Rollups of the journal: what happened per queue in each slice of time, so that dashboards never scan the journal. Sweepers
-- and dashboards add new events, each event once. New tables only: no lock on any other, except to read queues.

-- Up to where events were added. One row, which is also the lock of the process that adds.
create table tarry.rollup_head (
    is_head boolean primary key default true check (is_head),
    snapshot pg_snapshot not null,
    at timestamptz not null
) with (fillfactor = 50);
insert into tarry.rollup_head (snapshot, at) values (pg_current_snapshot(), clock_timestamp());

-- Each event counts in one slice of every width, so that a week needs no more rows than an hour.
create table tarry.rollup (
    width int not null,  -- seconds: 10, 60, 600, 3600
    start_at timestamptz not null,
    queue int not null,
    offered int not null,
    leased int not null,
    acked int not null,
    nacked int not null,
    expired int not null,
    buried int not null,
    redriven int not null,
    removed int not null,
    live_delta int not null,  -- by how many live messages became more
    dead_delta int not null,
    primary key (width, start_at, queue)
) with (fillfactor = 50);

-- How long first deliveries were late, and how long attempts took: bucket b has durations up to 2^(b/4) milliseconds.
create table tarry.rollup_time (
    width int not null,
    start_at timestamptz not null,
    queue int not null,
    measure text not null check (measure in ('lag', 'work')),
    bucket smallint not null,
    n int not null,
    primary key (width, start_at, queue, measure, bucket)
) with (fillfactor = 50);

create table tarry.rollup_consumer (
    width int not null,  -- 60, 3600
    start_at timestamptz not null,
    queue int not null,
    consumer text collate "C" not null,
    leased int not null,
    acked int not null,
    nacked int not null,
    expired int not null,
    work_s float8 not null,  -- of what was acked and nacked
    last_at timestamptz not null,
    primary key (width, start_at, queue, consumer)
) with (fillfactor = 50);

-- How many messages a queue has, exactly, as of the head. Counted once, then kept by the events; not where the journal is off.
create table tarry.rollup_total (
    queue int primary key,
    live bigint not null,
    dead bigint not null
) with (fillfactor = 50);
