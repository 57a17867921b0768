-- What the migrations add up to. Written by `make schema`, never by hand; a test proves that it is so.
-- For reading, and for people who make databases with a tool of their own.

create schema tarry;

create sequence tarry.archive_batch_seq as bigint;
create sequence tarry.event_seq as bigint;
create sequence tarry.version_seq as bigint;

create type tarry.event_kind as enum (
    'offered',
    'updated',
    'leased',
    'touched',
    'acked',
    'nacked',
    'released',
    'refused',
    'expired',
    'buried',
    'redriven',
    'dropped',
    'edited',
    'moved',
    'purged',
    'cron_planned',
    'cron_replaced',
    'queue_created',
    'queue_edited',
    'queue_renamed',
    'queue_paused',
    'queue_resumed',
    'queue_purged',
    'queue_deleted'
);

create type tarry.journal_level as enum (
    'off',
    'events',
    'payloads'
);

create table tarry.anomaly (
    id bigint generated always as identity,
    fingerprint text not null,
    detector text not null,
    detector_version integer not null,
    severity text not null,
    queue_id integer not null,
    queue text not null,
    key text collate "C",
    consumer text,
    window_from timestamp with time zone not null,
    window_to timestamp with time zone not null,
    sentence text not null,
    observed double precision,
    expected_low double precision,
    expected_high double precision,
    score double precision,
    evidence text not null,
    raised_at timestamp with time zone not null default clock_timestamp(),
    acknowledged_at timestamp with time zone,
    acknowledged_by text,
    note text,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint anomaly_fingerprint_key UNIQUE (fingerprint),
    constraint anomaly_pkey PRIMARY KEY (id),
    constraint anomaly_severity_check CHECK ((severity = ANY (ARRAY['info'::text, 'warning'::text, 'critical'::text])))
);
create index anomaly_open ON tarry.anomaly USING btree (queue_id, window_to) WHERE (acknowledged_at IS NULL);
create index anomaly_time ON tarry.anomaly USING btree (window_to, id);

create table tarry.anomaly_mute (
    id bigint generated always as identity,
    detector text,
    queue_id integer,
    until timestamp with time zone,
    reason text not null,
    muted_at timestamp with time zone not null default clock_timestamp(),
    constraint anomaly_mute_pkey PRIMARY KEY (id)
);

create table tarry.answer (
    caller text collate "C" not null,
    key text collate "C" not null,
    fingerprint bytea not null,
    status smallint not null,
    body bytea not null,
    at timestamp with time zone not null,
    constraint answer_pkey PRIMARY KEY (caller, key),
    constraint answer_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    constraint answer_key_check CHECK (((char_length(key) >= 1) AND (char_length(key) <= 200)))
);
create index answer_at ON tarry.answer USING btree (at);

create table tarry.api_key (
    id text not null,
    name text not null,
    secret_hash bytea not null,
    actions text[] not null,
    queues text[] not null,
    created_at timestamp with time zone not null,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    constraint api_key_pkey PRIMARY KEY (id),
    constraint api_key_actions_check CHECK (((cardinality(actions) > 0) AND (actions <@ ARRAY['read'::text, 'produce'::text, 'consume'::text, 'admin'::text]))),
    constraint api_key_id_check CHECK ((id ~ '^[0-9a-f]{12}$'::text)),
    constraint api_key_queues_check CHECK ((cardinality(queues) > 0)),
    constraint api_key_secret_hash_check CHECK ((octet_length(secret_hash) = 32))
);

create table tarry.archive_batch (
    batch bigint not null,
    lake text not null,
    kind text not null,
    place bigint not null,
    state text not null default 'planned'::text,
    system_id text not null,
    from_edge jsonb not null,
    to_edge jsonb not null,
    rows bigint not null default 0,
    checksum numeric not null default 0,
    files jsonb not null default '[]'::jsonb,
    days date[] not null default '{}'::date[],
    min_at timestamp with time zone,
    max_at timestamp with time zone,
    run bigint,
    planned_at timestamp with time zone not null default clock_timestamp(),
    durable_at timestamp with time zone,
    replaced_by bigint,
    replaced_at timestamp with time zone,
    cleared_at timestamp with time zone,
    constraint archive_batch_pkey PRIMARY KEY (batch),
    constraint archive_batch_kind_check CHECK ((kind = ANY (ARRAY['archive'::text, 'compaction'::text]))),
    constraint archive_batch_state_check CHECK ((state = ANY (ARRAY['planned'::text, 'durable'::text, 'pruned'::text, 'abandoned'::text, 'replaced'::text])))
);
create unique index archive_batch_chain ON tarry.archive_batch USING btree (lake, place) WHERE (state = ANY (ARRAY['durable'::text, 'pruned'::text]));
create unique index archive_batch_planned ON tarry.archive_batch USING btree (lake) WHERE (state = 'planned'::text);

create table tarry.archive_day (
    lake text not null,
    day date not null,
    rows bigint not null default 0,
    checksum numeric not null default 0,
    pruned_rows bigint not null default 0,
    pruned_checksum numeric not null default 0,
    retired_rows bigint not null default 0,
    retired_checksum numeric not null default 0,
    pruned_xid xid8,
    constraint archive_day_pkey PRIMARY KEY (lake, day)
);

create table tarry.archive_horizon (
    lake text not null,
    queue integer not null,
    before date not null,
    constraint archive_horizon_pkey PRIMARY KEY (lake, queue)
);

create table tarry.audit (
    id bigint generated always as identity,
    at timestamp with time zone not null,
    actor text not null,
    action text not null,
    queue text,
    detail jsonb,
    request_id text,
    status integer,
    constraint audit_pkey PRIMARY KEY (id)
);

create table tarry.consumer_hour (
    queue_id integer not null,
    hour timestamp with time zone not null,
    consumer text not null,
    queue text not null,
    leased bigint not null,
    acked bigint not null,
    failed bigint not null,
    expired bigint not null,
    released bigint not null,
    success_rate double precision,
    share double precision,
    processing_p50_s double precision,
    processing_p95_s double precision,
    processing_p99_s double precision,
    exact boolean not null,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint consumer_hour_pkey PRIMARY KEY (queue_id, hour, consumer)
);

create table tarry.dead_letter (
    version bigint not null,
    queue integer not null,
    died_at timestamp with time zone not null,
    due_at timestamp with time zone not null,
    created_at timestamp with time zone not null,
    priority smallint not null,
    attempt integer not null,
    reason text not null,
    key text collate "C" not null,
    payload bytea not null,
    type text,
    content_type text,
    headers jsonb,
    lease_for interval,
    max_attempts integer,
    retry double precision[],
    consumer text,
    origin bigint,
    error text,
    fingerprint text collate "C",
    constraint dead_letter_pkey PRIMARY KEY (version),
    constraint dead_letter_reason_check CHECK ((reason = ANY (ARRAY['exhausted'::text, 'undecodable'::text, 'buried'::text])))
);
create index dead_letter_group ON tarry.dead_letter USING btree (((queue + 0)), fingerprint, died_at, version);
create index dead_letter_order ON tarry.dead_letter USING btree (queue, died_at, version);

create table tarry.event (
    id bigint not null default nextval('tarry.event_seq'::regclass),
    xid xid8 not null default pg_current_xact_id(),
    at timestamp with time zone not null,
    version bigint,
    due_at timestamp with time zone,
    leased_at timestamp with time zone,
    lease_until timestamp with time zone,
    kind tarry.event_kind not null,
    queue integer not null,
    attempt integer,
    size integer,
    priority smallint,
    key text collate "C",
    consumer text,
    payload_hash bytea,
    error text,
    detail jsonb,
    payload bytea
) partition by RANGE (at);
create index event_find ON ONLY tarry.event USING brin ((((xid)::text)::bigint), key text_bloom_ops) WITH (pages_per_range='32', autosummarize='on');

create table tarry.forecast (
    queue_id integer not null,
    queue text not null,
    planned bigint not null,
    retries bigint not null,
    capacity double precision,
    saturated_at timestamp with time zone,
    recovered_at timestamp with time zone,
    peak_backlog double precision not null,
    peak_at timestamp with time zone,
    sentence text not null,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint forecast_pkey PRIMARY KEY (queue_id)
);

create table tarry.forecast_minute (
    queue_id integer not null,
    minute timestamp with time zone not null,
    queue text not null,
    planned bigint not null,
    retries bigint not null,
    backlog double precision not null,
    lag_s double precision,
    saturated boolean,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint forecast_minute_pkey PRIMARY KEY (queue_id, minute)
);

create table tarry.journal_point (
    branch bigint not null,
    system_id text not null,
    timeline text not null,
    lsn pg_lsn not null,
    snapshot pg_snapshot not null,
    constraint journal_point_pkey PRIMARY KEY (branch)
) with (
    fillfactor=50
);

create table tarry.leader (
    name text not null,
    holder text not null,
    fence bigint not null,
    since_at timestamp with time zone not null,
    lease_until timestamp with time zone not null,
    constraint leader_pkey PRIMARY KEY (name)
);

create table tarry.ledger (
    name text collate "C" not null,
    prefix text collate "C" not null,
    queue text not null,
    installed_at timestamp with time zone not null,
    constraint ledger_pkey PRIMARY KEY (name)
);
create index ledger_owner ON tarry.ledger USING btree (prefix, queue, installed_at);

create table tarry.message (
    version bigint not null default nextval('tarry.version_seq'::regclass),
    due_at timestamp with time zone not null,
    planned_at timestamp with time zone not null,
    created_at timestamp with time zone not null,
    queue integer not null,
    priority smallint not null,
    conflict smallint not null,
    lease_until timestamp with time zone not null default '-infinity'::timestamp with time zone,
    leased_at timestamp with time zone,
    attempt integer not null default 0,
    lapsed boolean not null default false,
    token uuid,
    consumer text,
    key text collate "C" not null,
    payload bytea not null,
    type text,
    content_type text,
    headers jsonb,
    lease_for interval,
    max_attempts integer,
    retry double precision[],
    due_limit timestamp with time zone,
    origin bigint,
    last_error text,
    expired_at timestamp with time zone,
    attempts_asked integer,
    constraint message_key_check CHECK (((char_length(key) >= 1) AND (char_length(key) <= 200))),
    constraint message_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
) with (
    fillfactor=45,
    autovacuum_vacuum_scale_factor=0,
    autovacuum_vacuum_threshold=5000,
    autovacuum_vacuum_cost_delay=0,
    autovacuum_vacuum_insert_scale_factor=0,
    autovacuum_vacuum_insert_threshold=50000,
    autovacuum_analyze_scale_factor=0,
    autovacuum_analyze_threshold=20000
);
create unique index message_key ON tarry.message USING btree (key, queue);
create index message_order ON tarry.message USING btree (((queue + 0)), priority, due_at, version);
create index message_order_by_type ON tarry.message USING btree (((queue + 0)), type, priority, due_at, version) WHERE (type IS NOT NULL);

create table tarry.message_fact (
    queue_id integer not null,
    version bigint not null,
    settled_at timestamp with time zone not null,
    offered_at timestamp with time zone,
    due_at timestamp with time zone,
    first_leased_at timestamp with time zone,
    origin bigint,
    last_id bigint not null,
    wait_s double precision,
    processing_s double precision not null,
    size integer,
    attempts integer not null,
    redeliveries integer not null,
    releases integer not null,
    priority smallint,
    queue text not null,
    outcome text not null,
    reason text,
    key text collate "C" not null,
    consumer text,
    last_error text,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint message_fact_pkey PRIMARY KEY (queue_id, version),
    constraint message_fact_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'dead'::text, 'dropped'::text, 'superseded'::text, 'redriven'::text, 'unknown'::text])))
);
create index message_fact_end ON tarry.message_fact USING btree (queue_id, settled_at);

create table tarry.metric_band (
    queue_id integer not null,
    metric text not null,
    hour_of_week integer not null,
    queue text not null,
    low double precision not null,
    middle double precision not null,
    high double precision not null,
    minutes bigint not null,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint metric_band_pkey PRIMARY KEY (queue_id, metric, hour_of_week),
    constraint metric_band_hour_of_week_check CHECK (((hour_of_week >= 0) AND (hour_of_week <= 167)))
);

create table tarry.metric_minute (
    queue_id integer not null,
    minute timestamp with time zone not null,
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
    depth bigint not null,
    dead bigint not null,
    lag_p50_s double precision,
    lag_p95_s double precision,
    lag_p99_s double precision,
    wait_p50_s double precision,
    wait_p95_s double precision,
    wait_p99_s double precision,
    processing_p50_s double precision,
    processing_p95_s double precision,
    processing_p99_s double precision,
    exact boolean not null,
    run_id bigint not null,
    fresh_at timestamp with time zone not null,
    constraint metric_minute_pkey PRIMARY KEY (queue_id, minute)
);
create index metric_minute_time ON tarry.metric_minute USING brin (minute);

create table tarry.migration (
    number integer not null,
    name text not null,
    checksum text not null,
    applied_at timestamp with time zone not null default clock_timestamp(),
    constraint migration_pkey PRIMARY KEY (number)
);

create table tarry.pipeline_run (
    id bigint generated always as identity,
    job text not null,
    started_at timestamp with time zone not null default clock_timestamp(),
    ended_at timestamp with time zone,
    state text not null default 'running'::text,
    summary jsonb not null default '{}'::jsonb,
    error text,
    constraint pipeline_run_pkey PRIMARY KEY (id),
    constraint pipeline_run_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text, 'lost'::text])))
);
create index pipeline_run_job ON tarry.pipeline_run USING btree (job, id);

create table tarry.queue (
    id integer generated always as identity,
    name text not null,
    lease_for interval not null,
    max_attempts integer,
    retry double precision[] not null,
    journal tarry.journal_level not null,
    retention_for interval not null,
    target_lag_for interval not null,
    paused_at timestamp with time zone,
    paused_reason text,
    created_at timestamp with time zone not null,
    updated_at timestamp with time zone not null,
    deleted_at timestamp with time zone,
    former_names text[] not null default '{}'::text[],
    constraint queue_pkey PRIMARY KEY (id),
    constraint queue_lease_for_check CHECK (((lease_for >= '00:00:01'::interval) AND (lease_for <= '12:00:00'::interval))),
    constraint queue_max_attempts_check CHECK ((max_attempts >= 1)),
    constraint queue_name_check CHECK ((name ~ '^[A-Za-z0-9._-]{1,100}$'::text)),
    constraint queue_retry_check CHECK ((cardinality(retry) = 4))
);
create unique index queue_name ON tarry.queue USING btree (name) WHERE (deleted_at IS NULL);

create table tarry.queue_day (
    lake text not null,
    day date not null,
    queue_id integer not null,
    net bigint not null,
    dead_net bigint not null,
    constraint queue_day_pkey PRIMARY KEY (lake, day, queue_id)
);

create table tarry.redrive_job (
    id bigint generated always as identity,
    request uuid not null,
    queue integer not null,
    fingerprint text collate "C",
    type text,
    died_from timestamp with time zone,
    died_to timestamp with time zone,
    key_prefix text collate "C",
    versions bigint[],
    rate double precision,
    canary integer not null,
    state text not null,
    phase text not null,
    reason text,
    who text,
    total bigint not null,
    total_capped boolean not null,
    redriven bigint not null default 0,
    skipped bigint not null default 0,
    canaries bigint[] not null default '{}'::bigint[],
    canary_keys text[] collate "C" not null default '{}'::text[],
    before_version bigint not null,
    after_died_at timestamp with time zone not null,
    after_version bigint not null default 0,
    step bigint not null default 0,
    next_at timestamp with time zone not null,
    created_at timestamp with time zone not null,
    updated_at timestamp with time zone not null,
    ended_at timestamp with time zone,
    constraint redrive_job_pkey PRIMARY KEY (id),
    constraint redrive_job_request_key UNIQUE (request),
    constraint redrive_job_canary_check CHECK ((canary >= 0)),
    constraint redrive_job_phase_check CHECK ((phase = ANY (ARRAY['canary'::text, 'verdict'::text, 'rest'::text]))),
    constraint redrive_job_rate_check CHECK ((rate > (0)::double precision)),
    constraint redrive_job_state_check CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'cancelled'::text, 'done'::text, 'failed'::text])))
);
create index redrive_job_queue ON tarry.redrive_job USING btree (queue, id);
create index redrive_job_running ON tarry.redrive_job USING btree (next_at) WHERE (state = 'running'::text);

create table tarry.schedule (
    prefix text collate "C" not null,
    hash text collate "C" not null,
    kind text not null,
    text text not null,
    zone text,
    queue text not null,
    payload bytea,
    content_type text,
    priority smallint not null,
    type text,
    misfire text not null,
    catch_up_for interval not null,
    grace_for interval not null,
    overlap text not null,
    jitter_for interval not null,
    in_advance_for interval not null,
    start_at timestamp with time zone,
    end_at timestamp with time zone,
    source text not null,
    generation integer not null,
    revision bigint not null,
    cursor_at timestamp with time zone not null,
    wake_at timestamp with time zone,
    ruled_at timestamp with time zone not null,
    installed_at timestamp with time zone not null,
    paused_at timestamp with time zone,
    paused_reason text,
    ledger text collate "C",
    constraint schedule_pkey PRIMARY KEY (prefix),
    constraint schedule_kind_check CHECK ((kind = ANY (ARRAY['periodic'::text, 'daily'::text, 'cron'::text, 'ticks'::text]))),
    constraint schedule_misfire_check CHECK ((misfire = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text]))),
    constraint schedule_overlap_check CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text]))),
    constraint schedule_prefix_check CHECK (((char_length(prefix) >= 1) AND (char_length(prefix) <= 200))),
    constraint schedule_priority_check CHECK (((priority >= 0) AND (priority <= 9)))
);
create index schedule_ruled ON tarry.schedule USING btree (ruled_at) WHERE (wake_at IS NOT NULL);
create index schedule_wake ON tarry.schedule USING btree (wake_at) WHERE (wake_at IS NOT NULL);

create table tarry.sink_attempt (
    id bigint generated always as identity,
    write bigint not null,
    run uuid not null,
    started_at timestamp with time zone not null,
    constraint sink_attempt_pkey PRIMARY KEY (id)
);
create index sink_attempt_write ON tarry.sink_attempt USING btree (write, run);

create unlogged table tarry.sink_row (
    attempt bigint not null,
    due_at timestamp with time zone,
    delay double precision,
    part integer not null,
    place integer not null,
    max_attempts integer,
    priority smallint not null,
    queue text collate "C" not null,
    key text collate "C" not null,
    payload bytea not null,
    content_type text,
    type text,
    headers jsonb
) with (
    autovacuum_vacuum_cost_delay=0
);
create index sink_row_attempt ON tarry.sink_row USING btree (attempt);

create table tarry.sink_write (
    id bigint generated always as identity,
    write_id text collate "C" not null,
    state text not null,
    rows bigint not null default 0,
    created bigint not null default 0,
    updated bigint not null default 0,
    ignored bigint not null default 0,
    superseded bigint not null default 0,
    started_at timestamp with time zone not null,
    committed_at timestamp with time zone,
    stream text,
    batch bigint,
    constraint sink_write_pkey PRIMARY KEY (id),
    constraint sink_write_write_id_key UNIQUE (write_id),
    constraint sink_write_check CHECK (((state = 'committed'::text) = (committed_at IS NOT NULL))),
    constraint sink_write_check1 CHECK (((stream IS NULL) = (batch IS NULL))),
    constraint sink_write_state_check CHECK ((state = ANY (ARRAY['staging'::text, 'committed'::text, 'aborted'::text]))),
    constraint sink_write_write_id_check CHECK (((char_length(write_id) >= 1) AND (char_length(write_id) <= 200)))
);
create index sink_write_stream ON tarry.sink_write USING btree (stream, batch) WHERE (stream IS NOT NULL);

create table tarry.tick (
    prefix text collate "C" not null,
    hash text collate "C" not null,
    tick timestamp with time zone not null,
    until timestamp with time zone,
    count integer,
    verdict text not null,
    reason text not null,
    decided_at timestamp with time zone not null,
    due_at timestamp with time zone,
    version bigint,
    queue integer,
    key text collate "C",
    constraint tick_verdict_check CHECK ((verdict = ANY (ARRAY['planned'::text, 'skipped'::text, 'withdrawn'::text, 'triggered'::text, 'backfilled'::text])))
);
create unique index tick_once ON tarry.tick USING btree (prefix, tick, hash) WHERE (until IS NULL);
create index tick_over ON tarry.tick USING btree (GREATEST(decided_at, COALESCE(until, tick)));
create index tick_run ON tarry.tick USING btree (prefix, tick) WHERE (until IS NOT NULL);

create table tarry.tick_forgotten (
    prefix text collate "C" not null,
    hash text collate "C" not null,
    until timestamp with time zone not null,
    constraint tick_forgotten_pkey PRIMARY KEY (prefix, hash)
);

create table tarry.trace_head (
    lake text not null,
    place bigint not null,
    snapshot text not null,
    system_id text not null,
    run_id bigint not null,
    traced_at timestamp with time zone not null,
    constraint trace_head_pkey PRIMARY KEY (lake)
);

create table tarry.trace_part (
    lake text not null,
    kind text not null,
    day date not null,
    run_id bigint not null,
    rows bigint not null,
    constraint trace_part_pkey PRIMARY KEY (lake, kind, day, run_id),
    constraint trace_part_kind_check CHECK ((kind = ANY (ARRAY['events'::text, 'facts'::text])))
);

create table tarry.trace_reader (
    lake text not null,
    job text not null,
    run_id bigint not null,
    constraint trace_reader_pkey PRIMARY KEY (lake, job)
);

create unlogged table tarry.waiter (
    queue integer not null,
    type text collate "C" not null,
    who text collate "C" not null,
    wakes_at timestamp with time zone not null,
    renewed_at timestamp with time zone not null default clock_timestamp(),
    constraint waiter_pkey PRIMARY KEY (queue, type, who)
) with (
    fillfactor=50,
    autovacuum_vacuum_scale_factor=0,
    autovacuum_vacuum_threshold=200,
    autovacuum_vacuum_cost_delay=0,
    autovacuum_analyze_scale_factor=0,
    autovacuum_analyze_threshold=100000
);

create table tarry.event_overflow partition of tarry.event DEFAULT;

create function tarry.event_hash(e tarry.event) returns bigint language sql stable parallel safe as $$
    select hashint8extended(
        hashint8extended(e.id, 1) # hashint8extended(e.xid::text::bigint, 2)
        # timestamp_hash_extended(e.at at time zone 'UTC', 3) # hashtextextended(e.kind::text collate "C", 4)
        # hashint4extended(e.queue, 5) # coalesce(hashtextextended(e.key, 6), 6)
        # coalesce(hashint8extended(e.version, 7), 7) # coalesce(hashint4extended(e.attempt, 8), 8)
        # coalesce(hashint4extended(e.priority::int, 9), 9)
        # coalesce(timestamp_hash_extended(e.due_at at time zone 'UTC', 10), 10)
        # coalesce(timestamp_hash_extended(e.leased_at at time zone 'UTC', 11), 11)
        # coalesce(timestamp_hash_extended(e.lease_until at time zone 'UTC', 12), 12)
        # coalesce(hashtextextended(e.consumer collate "C", 13), 13) # coalesce(hashint4extended(e.size, 14), 14)
        # coalesce(hashtextextended(encode(e.payload_hash, 'hex') collate "C", 15), 15)
        # coalesce(hashtextextended(e.error collate "C", 16), 16)
        # coalesce(hashtextextended(e.detail::text collate "C", 17), 17)
        # coalesce(hashtextextended(encode(sha256(e.payload), 'hex') collate "C", 18), 18), 0)
$$;

create function tarry.journal_closed(OUT name text, OUT first date, OUT last date, OUT is_proven boolean) returns record language sql stable as $$
    select conname::text, to_date(split_part(conname::text, '_', 2), 'YYYYMMDD'),
        to_date(split_part(conname::text, '_', 3), 'YYYYMMDD'), convalidated
    from pg_constraint where conrelid = 'tarry.event_overflow'::regclass and conname ~ '^closed_[0-9]{8}_[0-9]{8}$'
$$;

create function tarry.journal_drop(day date, expected bigint) returns bigint language plpgsql as $$
declare
    part text := format('event_%s', to_char(day, 'YYYYMMDD'));
    found bigint;
    last xid8;
begin
    perform set_config('lock_timeout', '200ms', true);
    begin
        execute format('lock table tarry.%I in share row exclusive mode', part);
        execute format('select count(*), max(xid) from tarry.%I', part) into found, last;
        if found <> expected then
            return null;
        end if;
        execute format('drop table tarry.%I', part);
    exception when lock_not_available or undefined_table then
        return null;
    end;
    update tarry.archive_day d
    set pruned_rows = rows, pruned_checksum = checksum, pruned_xid = greatest(pruned_xid, last)
    where d.day = journal_drop.day and d.rows > d.pruned_rows;
    return found;
end $$;

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

create function tarry.journal_overflow_is_large() returns boolean language sql stable as $$
    select pg_relation_size('tarry.event_overflow') > 2097152
$$;

create function tarry.journal_partition(day date) returns boolean language plpgsql as $$
declare
    part text := format('event_%s', to_char(day, 'YYYYMMDD'));
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
    is_proven boolean := coalesce((select c.is_proven and day between c.first and c.last from tarry.journal_closed() c), false);
begin
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    if not is_proven and tarry.journal_overflow_is_large() then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('tarry.journal_partition'));
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    execute format('create table tarry.%I (like tarry.event including defaults including storage)', part);
    -- A row that came in between would be in the way of the partition.
    lock table tarry.event_overflow in access exclusive mode;
    if not is_proven then
        execute format(
            'with moved as (delete from tarry.event_overflow where at >= %L and at < %L returning *) '
            'insert into tarry.%I select * from moved', from_at, to_at, part);
    end if;
    execute format('alter table tarry.event attach partition tarry.%I for values from (%L) to (%L)', part, from_at, to_at);
    -- An empty table is born with its first range summarised, and every event would rewrite that summary: 1.2 KB of WAL.
    perform brin_desummarize_range(i.indexrelid, 0)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = format('tarry.%I', part)::regclass and c.relam = (select oid from pg_am where amname = 'brin');
    return true;
end $$;

create function tarry.journal_step(days integer) returns boolean language plpgsql as $$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    first date := ((clock_timestamp() + interval '1 hour') at time zone 'UTC')::date + 1;
    last date := today + days;
    closed record;
begin
    select * into closed from tarry.journal_closed();
    if closed.name is not null then
        if not closed.is_proven and closed.first::timestamp at time zone 'UTC' > clock_timestamp() + interval '15 minutes' then
            execute format('alter table tarry.event_overflow validate constraint %I', closed.name);
            return true;
        end if;
        execute format('alter table tarry.event_overflow drop constraint %I', closed.name);
        return false;
    end if;
    if not tarry.journal_overflow_is_large() or not exists (
        select from generate_series(first, last, '1 day') day where not exists (
            select from pg_class where relnamespace = 'tarry'::regnamespace and relname = 'event_' || to_char(day, 'YYYYMMDD')))
    then
        return false;
    end if;
    execute format('alter table tarry.event_overflow add constraint %I check (at < %L or at >= %L) not valid',
        format('closed_%s_%s', to_char(first, 'YYYYMMDD'), to_char(last, 'YYYYMMDD')),
        first::timestamp at time zone 'UTC', (last + 1)::timestamp at time zone 'UTC');
    return true;
end $$;

create function tarry.message_state(m tarry.message, now timestamp with time zone) returns text language sql stable as $$
    select case when m.lease_until > now then 'leased' when m.due_at > now then 'delayed' else 'ready' end
$$;

create function tarry.told(type text, content_type text, headers jsonb) returns jsonb language sql immutable parallel safe as $$
    select nullif(
        jsonb_strip_nulls(jsonb_build_object('type', type, 'content_type', content_type, 'headers', headers)), '{}')
$$;

create view tarry.journal as
 SELECT e.id,
    e.xid,
    e.at,
    e.kind,
    q.name AS queue,
    e.key,
    e.version,
    e.attempt,
    e.priority,
    e.due_at,
    e.leased_at,
    e.lease_until,
    e.consumer,
    e.size,
    e.payload_hash,
    e.error,
    e.detail,
    e.payload
   FROM tarry.event e
     JOIN tarry.queue q ON q.id = e.queue;

create view tarry.metrics as
 SELECT q.name AS queue_name,
    m.queue_id,
    m.minute,
    m.queue,
    m.offered,
    m.updated,
    m.redriven,
    m.leased,
    m.acked,
    m.nacked,
    m.released,
    m.expired,
    m.buried,
    m.dropped,
    m.purged,
    m.refused,
    m.bytes_offered,
    m.depth,
    m.dead,
    m.lag_p50_s,
    m.lag_p95_s,
    m.lag_p99_s,
    m.wait_p50_s,
    m.wait_p95_s,
    m.wait_p99_s,
    m.processing_p50_s,
    m.processing_p95_s,
    m.processing_p99_s,
    m.exact,
    m.run_id,
    m.fresh_at
   FROM tarry.metric_minute m
     LEFT JOIN tarry.queue q ON q.id = m.queue_id;

create view tarry.consumers as
 SELECT q.name AS queue_name,
    c.queue_id,
    c.hour,
    c.consumer,
    c.queue,
    c.leased,
    c.acked,
    c.failed,
    c.expired,
    c.released,
    c.success_rate,
    c.share,
    c.processing_p50_s,
    c.processing_p95_s,
    c.processing_p99_s,
    c.exact,
    c.run_id,
    c.fresh_at
   FROM tarry.consumer_hour c
     LEFT JOIN tarry.queue q ON q.id = c.queue_id;

create view tarry.facts as
 SELECT q.name AS queue_name,
    f.queue_id,
    f.version,
    f.settled_at,
    f.offered_at,
    f.due_at,
    f.first_leased_at,
    f.origin,
    f.last_id,
    f.wait_s,
    f.processing_s,
    f.size,
    f.attempts,
    f.redeliveries,
    f.releases,
    f.priority,
    f.queue,
    f.outcome,
    f.reason,
    f.key,
    f.consumer,
    f.last_error,
    f.run_id,
    f.fresh_at
   FROM tarry.message_fact f
     LEFT JOIN tarry.queue q ON q.id = f.queue_id;

create view tarry.forecasts as
 SELECT q.name AS queue_name,
    f.queue_id,
    f.queue,
    f.planned,
    f.retries,
    f.capacity,
    f.saturated_at,
    f.recovered_at,
    f.peak_backlog,
    f.peak_at,
    f.sentence,
    f.run_id,
    f.fresh_at
   FROM tarry.forecast f
     LEFT JOIN tarry.queue q ON q.id = f.queue_id;

create view tarry.anomalies as
 SELECT q.name AS queue_name,
    a.id,
    a.fingerprint,
    a.detector,
    a.detector_version,
    a.severity,
    a.queue_id,
    a.queue,
    a.key,
    a.consumer,
    a.window_from,
    a.window_to,
    a.sentence,
    a.observed,
    a.expected_low,
    a.expected_high,
    a.score,
    a.evidence,
    a.raised_at,
    a.acknowledged_at,
    a.acknowledged_by,
    a.note,
    a.run_id,
    a.fresh_at
   FROM tarry.anomaly a
     LEFT JOIN tarry.queue q ON q.id = a.queue_id;

insert into tarry.migration (number, name, checksum) values
    (1, '0001_pre_foundation', 'a8b042ee4186f197'),
    (2, '0002_pre_archive', 'bcf72326785bd4cf'),
    (3, '0003_pre_sink', '2e781cd8627c5b21'),
    (4, '0004_pre_serving', '7100109be5b7ae1b'),
    (5, '0005_pre_anomalies', 'd80168f737e1d353'),
    (6, '0006_pre_waiting', 'cd4d0f566cf62b7b'),
    (7, '0007_pre_redriving', 'f843cfc67cbb3362'),
    (8, '0008_pre_cron', 'e508d2caae426c7d'),
    (9, '0009_pre_keys', '350a1395739a0b3e'),
    (10, '0010_pre_attempts_asked', '6c8e200da0c5ae8f'),
    (11, '0011_pre_ledger', '54304529f41d565a'),
    (12, '0012_pre_answers', '43712437bfa10aa4'),
    (13, '0013_pre_told', 'cf2e1397d3c4473d'),
    (14, '0014_pre_failover', '3f17d48d0d0452fa'),
    (15, '0015_pre_overflow', '0bb0d1b48434e066'),
    (16, '0016_pre_ledgers', 'cf3e9b7e79cd4f7f'),
    (17, '0017_pre_former_names', '903fb7179500a930');
