-- What the pipeline has worked out, for dashboard, API and command line; and how far it has come. New tables only.
-- Every row that people read says which run wrote it and how fresh it is; a row that a later run finds unchanged is left
-- alone, so `fresh_at` is the age of what it says. Queues are named by id, because names change; the name stands beside.

create table tarry.metric_minute (
    queue_id int not null,
    minute timestamptz not null,
    queue text not null,
    offered bigint not null,
    updated bigint not null,
    redriven bigint not null,
    leased bigint not null,
    acked bigint not null,
    nacked bigint not null,
    released bigint not null,
    expired bigint not null,
    buried bigint not null,
    dropped bigint not null,
    purged bigint not null,
    refused bigint not null,
    bytes_offered bigint not null,
    depth bigint not null,  -- live messages at the end of the minute
    dead bigint not null,
    lag_p50_s float8,  -- leased − eligible
    lag_p95_s float8,
    lag_p99_s float8,
    wait_p50_s float8,  -- leased − offered
    wait_p95_s float8,
    wait_p99_s float8,
    processing_p50_s float8,  -- settled − leased
    processing_p95_s float8,
    processing_p99_s float8,
    exact boolean not null,
    run_id bigint not null,
    fresh_at timestamptz not null,
    primary key (queue_id, minute)
);
create index metric_minute_time on tarry.metric_minute using brin (minute);

create table tarry.consumer_hour (
    queue_id int not null,
    hour timestamptz not null,
    consumer text not null,
    queue text not null,
    leased bigint not null,
    acked bigint not null,
    failed bigint not null,
    expired bigint not null,
    released bigint not null,
    success_rate float8,
    share float8,
    processing_p50_s float8,
    processing_p95_s float8,
    processing_p99_s float8,
    exact boolean not null,
    run_id bigint not null,
    fresh_at timestamptz not null,
    primary key (queue_id, hour, consumer)
);

-- Versions that have ended, of the last days; all of them are in the lake, and the live ones in `message`.
create table tarry.message_fact (
    queue_id int not null,
    version bigint not null,
    settled_at timestamptz not null,
    offered_at timestamptz,
    due_at timestamptz,
    first_leased_at timestamptz,
    origin bigint,
    last_id bigint not null,
    wait_s float8,
    processing_s float8 not null,
    size int,
    attempts int not null,
    redeliveries int not null,
    releases int not null,
    priority smallint,
    queue text not null,
    outcome text not null
        check (outcome in ('done', 'dead', 'dropped', 'superseded', 'redriven', 'unknown')),
    reason text,
    key text collate "C" not null,
    consumer text,
    last_error text,
    run_id bigint not null,
    fresh_at timestamptz not null,
    primary key (queue_id, version)
);
create index message_fact_end on tarry.message_fact (queue_id, settled_at);

create table tarry.forecast (
    queue_id int primary key,
    queue text not null,
    planned bigint not null,
    retries bigint not null,
    capacity float8,  -- messages a minute
    saturated_at timestamptz,
    recovered_at timestamptz,
    peak_backlog float8 not null,
    peak_at timestamptz,
    sentence text not null,
    run_id bigint not null,
    fresh_at timestamptz not null
);

create table tarry.forecast_minute (
    queue_id int not null,
    minute timestamptz not null,
    queue text not null,
    planned bigint not null,
    retries bigint not null,
    backlog float8 not null,
    lag_s float8,
    saturated boolean,
    run_id bigint not null,
    fresh_at timestamptz not null,
    primary key (queue_id, minute)
);

-- How much of an archive has been traced: everything visible in `snapshot`. `run_id` names the directory of the versions
-- that were open then.
create table tarry.trace_head (
    lake text primary key,
    place bigint not null,
    snapshot text not null,
    system_id text not null,
    run_id bigint not null,
    traced_at timestamptz not null
);
-- The directories that hold what was traced. Whatever else lies there does not exist.
create table tarry.trace_part (
    lake text not null,
    kind text not null check (kind in ('events', 'facts')),
    day date not null,
    run_id bigint not null,
    rows bigint not null,
    primary key (lake, kind, day, run_id)
);
-- Up to which run of the tracing each job has worked.
create table tarry.trace_reader (
    lake text not null,
    job text not null,
    run_id bigint not null,
    primary key (lake, job)
);
-- By how many the live and the dead of a queue grew in a day: the sum over the days before is where a day begins.
create table tarry.queue_day (
    lake text not null,
    day date not null,
    queue_id int not null,
    net bigint not null,
    dead_net bigint not null,
    primary key (lake, day, queue_id)
);

-- For people who look with SQL: with the name that a queue has now.
create view tarry.metrics as
    select q.name as queue_name, m.* from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id;
create view tarry.consumers as
    select q.name as queue_name, c.* from tarry.consumer_hour c left join tarry.queue q on q.id = c.queue_id;
create view tarry.facts as
    select q.name as queue_name, f.* from tarry.message_fact f left join tarry.queue q on q.id = f.queue_id;
create view tarry.forecasts as
    select q.name as queue_name, f.* from tarry.forecast f left join tarry.queue q on q.id = f.queue_id;
