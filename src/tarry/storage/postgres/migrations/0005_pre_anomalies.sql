-- What detectors found, what people said about it, and what is usual. New tables only.

-- One row per thing found, however often it is found again: the fingerprint decides. A run that looks at the same time
-- again updates what it says, never whether somebody has acknowledged it.
create table tarry.anomaly (
    id bigint generated always as identity primary key,
    fingerprint text not null unique,
    detector text not null,
    detector_version int not null,
    severity text not null check (severity in ('info', 'warning', 'critical')),
    queue_id int not null,
    queue text not null,
    key text collate "C",
    consumer text,
    window_from timestamptz not null,
    window_to timestamptz not null,
    sentence text not null,
    observed float8,
    expected_low float8,
    expected_high float8,
    score float8,
    evidence text not null,
    raised_at timestamptz not null default clock_timestamp(),
    acknowledged_at timestamptz,
    acknowledged_by text,
    note text,
    run_id bigint not null,
    fresh_at timestamptz not null
);
create index anomaly_time on tarry.anomaly (window_to, id);
create index anomaly_open on tarry.anomaly (queue_id, window_to) where acknowledged_at is null;

-- Null stands for every detector, or every queue; `until` null for as long as the row is there.
create table tarry.anomaly_mute (
    id bigint generated always as identity primary key,
    detector text,
    queue_id int,
    until timestamptz,
    reason text not null,
    muted_at timestamptz not null default clock_timestamp()
);

-- What was usual in each hour of the week when it was last judged: the band that is drawn around a metric. It is made from
-- histograms in the lake, which are the baselines proper.
create table tarry.metric_band (
    queue_id int not null,
    metric text not null,
    hour_of_week int not null check (hour_of_week between 0 and 167),  -- 0 is Monday 00:00 UTC
    queue text not null,
    low float8 not null,
    middle float8 not null,
    high float8 not null,
    minutes bigint not null,
    run_id bigint not null,
    fresh_at timestamptz not null,
    primary key (queue_id, metric, hour_of_week)
);

-- For people who look with SQL: with the name that a queue has now.
create view tarry.anomalies as
    select q.name as queue_name, a.* from tarry.anomaly a left join tarry.queue q on q.id = a.queue_id;
