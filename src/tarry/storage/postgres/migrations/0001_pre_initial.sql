-- The initial schema: queues, messages, dead letters, the journal, wakeup, redrives, leadership, cron, security, the tables of
-- the data pipeline, rollups, and the dashboard's bulk jobs.

create sequence tarry.version_seq as bigint;
create sequence tarry.event_seq as bigint;

create type tarry.journal_level as enum ('off', 'events', 'payloads');

create type tarry.event_kind as enum (
    'offered', 'updated', 'leased', 'touched', 'acked', 'nacked', 'released', 'refused', 'expired', 'buried',
    'redriven', 'dropped', 'edited', 'discarded', 'cron_planned', 'cron_replaced', 'queue_created', 'queue_edited',
    'queue_renamed', 'queue_paused', 'queue_resumed', 'queue_purged', 'queue_deleted'
);

-- A deleted queue keeps its row: the journal refers to it by id, and history must keep its name.
create table tarry.queue (
    id int generated always as identity primary key,
    name text not null check (name ~ '^[A-Za-z0-9._-]{1,100}$'),
    lease_for interval not null check (lease_for between interval '1 second' and interval '12 hours'),
    max_attempts int check (max_attempts >= 1),
    retry float8[] not null check (cardinality(retry) = 4),  -- initial s, factor, cap s, jitter
    journal tarry.journal_level not null,
    retention_for interval not null,
    target_lag_for interval not null,
    max_depth int check (max_depth >= 1),
    description text,
    handler_max_attempts int,
    paused_at timestamptz,
    paused_reason text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz,
    has_leftovers boolean not null default false,  -- deleted by force: its messages are being removed, in batches
    former_names text[] not null default '{}'  -- the latest last, at most ten: requests in flight during a rename use them
);
create unique index queue_name on tarry.queue (name) where deleted_at is null;
create index queue_leftovers on tarry.queue (id) where has_leftovers;

-- Types, not constraints of the table: those are read anew for each statement that changes a row, which was a tenth of the
-- database's time for a single offer, and a poll changes neither.
create domain tarry.message_key as text collate "C" check (char_length(value) between 1 and 200);
create domain tarry.message_priority as smallint check (value between 0 and 9);

-- Live messages only. A poll writes none of the indexed columns, and more than half of every page is left free, so the update
-- stays on its page (HOT) and touches no index, also if all rows of a page are leased at once by a consumer with a long name. There are exactly two access paths, and no statement can use the wrong
-- one: by key, and by order. `queue + 0` keeps the planner from using the order for a query by key, and the other way round.
create table tarry.message (
    version bigint not null default nextval('tarry.version_seq'),
    due_at timestamptz not null,
    planned_at timestamptz not null,  -- due_at as it was offered: a retry moves due_at, and must not look like a change
    created_at timestamptz not null,
    queue int not null,
    priority tarry.message_priority not null,
    conflict smallint not null,  -- how it was offered: 0 replace, 1 keep, 2 earliest, 3 debounce
    lease_until timestamptz not null default '-infinity',
    leased_at timestamptz,
    token bigint,  -- the number of the poll that leased it
    attempt int not null default 0,
    lapsed boolean not null default false,  -- the lease before this one ran out
    consumer text,
    key tarry.message_key not null,
    payload bytea not null,
    type text,
    content_type text,  -- null is JSON
    headers jsonb,
    lease_for interval,
    max_attempts int,
    retry float8[],
    due_limit timestamptz,  -- as far as debouncing may push it
    origin bigint,  -- the dead version it was redriven from
    last_error text,
    expired_at timestamptz,  -- when the expiry of its lease was journaled; the token stays, so that a late ack still counts
    policy_max_attempts int  -- max_attempts of the retry policy of the last poll, for the sweeper; the message's own comes first
) with (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
create unique index message_key on tarry.message (key, queue);
create index message_order on tarry.message ((queue + 0), priority, due_at, version);
-- Maintained only for messages that have a type: a poll for one type must not scan the backlog of the others.
create index message_order_by_type on tarry.message ((queue + 0), type, priority, due_at, version)
    where type is not null;

create table tarry.dead_letter (
    version bigint primary key,  -- a version dies once
    queue int not null,
    died_at timestamptz not null,
    due_at timestamptz not null,
    created_at timestamptz not null,
    priority smallint not null,
    attempt int not null,
    reason text not null check (reason in ('exhausted', 'undecodable', 'buried')),
    key text collate "C" not null,
    payload bytea not null,
    type text,
    content_type text,
    headers jsonb,
    lease_for interval,
    max_attempts int,
    retry float8[],
    consumer text,
    origin bigint,
    error text,
    fingerprint text collate "C"  -- null: not computed yet, see dead_letters/sql/without_fingerprint.sql
);
create index dead_letter_order on tarry.dead_letter (queue, died_at, version);
-- `queue + 0` as in message_order: queries for a group have no other index, and queries for the order cannot use this one.
create index dead_letter_group on tarry.dead_letter ((queue + 0), fingerprint, died_at, version);

-- Append only, one partition a day, dropped as a whole after it was archived. `xid` lets a reader select what was committed
-- between two snapshots; `id` is allocated under the row lock of the message, so it orders the events of one key.
create table tarry.event (
    id bigint not null default nextval('tarry.event_seq'),
    xid xid8 not null default pg_current_xact_id(),
    at timestamptz not null,
    version bigint,
    due_at timestamptz,
    leased_at timestamptz,
    lease_until timestamptz,
    kind tarry.event_kind not null,
    queue int not null,
    attempt int,
    size int,
    priority smallint,
    key text collate "C",
    consumer text,
    payload_hash bytea,
    error text,
    detail jsonb,
    payload bytea
) partition by range (at);
-- One small index for two queries: what was committed since (there is no BRIN class for xid8, so readers compare
-- `xid::text::bigint`), and the events of one key (a bloom filter). It costs no WAL per event; a B-tree costs 65 bytes.
create index event_find on tarry.event using brin ((xid::text::bigint), key text_bloom_ops)
    with (pages_per_range = 32, autosummarize = on);

-- For events of days without a partition, so that a missing partition never stops a queue.
create table tarry.event_overflow partition of tarry.event default;

-- Partitions are created without long work under a lock, however many events the overflow has.
-- Creating one needs an exclusive lock on the overflow, into which every statement may be writing. Moving events costs 8 µs each
-- under it, and ATTACH reads the whole overflow. So events are moved only out of a small overflow (2 MB, some 14,000 events). A
-- large one is first proven to have no event of the days ahead: a check constraint `closed_<first day>_<last day>`, added
-- NOT VALID (a moment), validated while others write, relied on by ATTACH, and dropped. Events of today in the overflow stay
-- there until they are pruned.

create function tarry.journal_overflow_is_large() returns boolean language sql stable as $$
    select pg_relation_size('tarry.event_overflow') > 2097152
$$;

-- The days that the overflow is closed to, if any.
create function tarry.journal_closed(out name text, out first date, out last date, out is_proven boolean)
language sql stable as $$
    select conname::text, to_date(split_part(conname::text, '_', 2), 'YYYYMMDD'),
        to_date(split_part(conname::text, '_', 3), 'YYYYMMDD'), convalidated
    from pg_constraint where conrelid = 'tarry.event_overflow'::regclass and conname ~ '^closed_[0-9]{8}_[0-9]{8}$'
$$;

-- Create the partition of one day. True if it was created now; false also where the overflow is large and not proven to have no
-- event of that day. Reads pg_class, because to_regclass uses a cache that waiting for an advisory lock does not refresh.
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
    -- A row that is inserted in between would violate the constraint of the partition.
    lock table tarry.event_overflow in access exclusive mode;
    if not is_proven then
        execute format(
            'with moved as (delete from tarry.event_overflow where at >= %L and at < %L returning *) '
            'insert into tarry.%I select * from moved', from_at, to_at, part);
    end if;
    execute format('alter table tarry.event attach partition tarry.%I for values from (%L) to (%L)', part, from_at, to_at);
    -- The first range of an empty table is summarised, and every event would rewrite that summary: 1.2 KB of WAL.
    perform brin_desummarize_range(i.indexrelid, 0)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = format('tarry.%I', part)::regclass and c.relam = (select oid from pg_am where amname = 'brin');
    return true;
end $$;

-- The next step on the way to partitions beside a large overflow, one per transaction: close it, prove it, and, when the
-- partitions are made, open it again. True: there is another step. The days that it is closed to begin at least an hour from
-- now, and it is opened a quarter of an hour before they do: an event that finds neither a partition nor the overflow fails.
create function tarry.journal_step(days int) returns boolean language plpgsql as $$
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

-- The position of the write-ahead log when a position of the journal was returned, committed before each of them.
-- A standby that was promoted has the rows that it had received, and no others: so it has everything up to the highest
-- `lsn` of an earlier timeline, and a position beyond that belongs to a history that was lost.
-- Writers never wait for each other: each takes a row that is free, or adds one. `branch` is random, so that two standbys
-- that were promoted to timelines of the same number are distinguished.
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

-- Detail of an event: the type, and with a payload what is needed to decode and to route it. Without its content type a text "17"
-- would be replayed as a number, and without its type no handler would poll it. Null if there is none. Stable, as jsonb_build_object
-- is: else PostgreSQL would not inline it, and call it for every offer.
create function tarry.detail(has_payload boolean, type text, content_type text, headers jsonb) returns jsonb
language sql stable parallel safe as $$
    select case when has_payload then nullif(
            jsonb_strip_nulls(jsonb_build_object('type', type, 'content_type', content_type, 'headers', headers)), '{}')
        when type is not null then jsonb_build_object('type', type) end
$$;

-- The state of a live message, as `live_state` of the core computes it.
create function tarry.message_state(m tarry.message, now timestamptz) returns text language sql stable as $$
    select case when m.lease_until > now then 'leased' when m.due_at > now then 'delayed' else 'ready' end
$$;

-- The journal with names of queues, for reading.
create view tarry.journal as
    select e.id, e.xid, e.at, e.kind, q.name as queue, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
           e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail, e.payload
    from tarry.event e join tarry.queue q on q.id = e.queue;

-- Waiting consumers: per queue, and until when they sleep. An offer notifies only those that sleep until later than it is due.
-- Never needed for correctness, so it is unlogged: renewing it does not wait for the disk, and a crash may lose it. One row per
-- process, queue and type ('' is any), renewed in place (HOT), without an index beyond its key. The row of a process that
-- was killed expires.
create unlogged table tarry.waiter (
    queue int not null,
    type text collate "C" not null,
    process text collate "C" not null,
    wakes_at timestamptz not null,
    renewed_at timestamptz not null default clock_timestamp(),
    primary key (queue, type, process)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);

-- Notify processes that sleep until later than `due_at`, for `messages` messages of these types. Of what is due now, also those
-- that were to wake up within the last second: they have polled, and are about to sleep again. A notification names a few
-- processes, chosen at random: four, and one more per message. The others look later, each at a random time within the seconds that
-- are given: the named ones may have ended, or be busy. Where few wait none is named, and all wake up.
create function tarry.notify_waiters(
    queue_id int, queue_name text, due_at timestamptz, now_at timestamptz, types text[], messages int
) returns bigint language sql as $$
    select count(pg_notify('tarry', queue_name || case
        when w.n > named then concat(',', round(w.n / (4.0 * named), 1), ',', array_to_string(w.processes[1 : named], ',')) else '' end
        || '/' || w.type))
    from coalesce(now_at, statement_timestamp()) now
    cross join lateral (
        select type, count(*)::int as n, array_agg(process order by random()) as processes
        from tarry.waiter
        where queue = queue_id and wakes_at > case when due_at <= now then now - interval '1s' else due_at end
          and (type = '' or type = any (types))
        group by type
    ) w
    cross join least(messages + 4, 32) named
$$;

-- One redrive by filter. A process that runs a step names it: of two processes, one finds the step done.
create table tarry.redrive_job (
    id bigint generated always as identity primary key,
    request uuid not null unique,  -- idempotency: a repeated request is the same job
    queue int not null,
    target int,  -- another queue, for the messages
    fingerprint text collate "C",
    type text,
    died_from timestamptz,
    died_to timestamptz,
    key_prefix text collate "C",
    versions bigint[],
    rate float8 check (rate > 0),  -- messages a second
    canary int not null check (canary >= 0),
    jitter interval not null default '0',
    stop_above float8,  -- the share of what it redrove that may die again; counted while it is set, up to `judged_…`
    max_attempts int,  -- of each redriven message; null: its own, else the queue's
    died_again bigint not null default 0,
    judged_at timestamptz not null default clock_timestamp(),
    judged_version bigint not null default 0,
    state text not null check (state in ('running', 'paused', 'cancelled', 'done', 'failed')),
    phase text not null check (phase in ('canary', 'verdict', 'rest')),
    reason text,
    started_by text,
    total bigint not null,  -- what matched when it began, as far as it was counted
    total_capped boolean not null,
    redriven bigint not null default 0,
    skipped bigint not null default 0,
    canaries bigint[] not null default '{}',  -- versions under which they live again, and their keys
    canary_keys text[] collate "C" not null default '{}',
    before_version bigint not null,  -- what the job revived, and dies again, has a higher version and is left alone
    after_died_at timestamptz not null,
    after_version bigint not null default 0,
    step bigint not null default 0,
    next_at timestamptz not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    ended_at timestamptz
);
create index redrive_job_running on tarry.redrive_job (next_at) where state = 'running';
create index redrive_job_queue on tarry.redrive_job (queue, id);

-- The leaders, by role. The fencing token grows with every new leader, and rows stay, so it never starts again.
create table tarry.leader (
    name text primary key,
    holder text not null,
    fence bigint not null,
    since_at timestamptz not null,
    lease_until timestamptz not null
);

-- Running workers, as each reports now and then. Unlogged: after a crash every worker reports again.
create unlogged table tarry.worker (
    id text collate "C" primary key,
    consumer text collate "C" not null,
    host text not null,
    pid bigint not null,
    version text not null,
    queues text[] not null,
    concurrency int not null,
    running int not null,
    extensions bigint not null,
    is_stopping boolean not null,
    release text,
    skew interval not null,
    started_at timestamptz not null,
    seen_at timestamptz not null,
    drain_at timestamptz
) with (fillfactor = 50);

-- When a consumer ran a release of the user's program, noted once a minute.
create table tarry.worker_release (
    consumer text collate "C",
    release text collate "C",
    first_at timestamptz not null,
    last_at timestamptz not null,
    primary key (consumer, release)
);
create index on tarry.worker_release (last_at);

-- Cron: schedules, and the ledger of what was decided about their ticks.

-- One row per schedule: its configuration, and how far it is planned. Every change raises `revision` and names the one before
-- (compare-and-set), so any number of schedulers do nothing twice.
create table tarry.schedule (
    name text collate "C" primary key check (char_length(name) between 1 and 200),
    hash text collate "C" not null,
    kind text not null check (kind in ('periodic', 'daily', 'cron', 'ticks')),
    text text not null,
    zone text,
    queue text not null,
    payload bytea,  -- null: made by the program that installed it
    content_type text,
    priority smallint not null check (priority between 0 and 9),
    type text,
    misfire text not null check (misfire in ('skip', 'once', 'all')),
    catch_up_for interval not null,
    grace_for interval not null,
    overlap text not null check (overlap in ('allow', 'skip')),
    jitter_for interval not null,
    in_advance_for interval not null,
    start_at timestamptz,
    end_at timestamptz,
    source text not null,
    generation int not null,
    revision bigint not null,
    cursor_at timestamptz not null,  -- every tick up to here has been decided
    wake_at timestamptz,  -- when it next needs a scheduler
    decided_at timestamptz not null,
    installed_at timestamptz not null,
    paused_at timestamptz,
    paused_reason text,
    ledger text collate "C"  -- set in the transaction that installs the schedule
);
create index schedule_wake on tarry.schedule (wake_at) where wake_at is not null;
-- Rows that were changed at a time in the future: the clock was set back.
create index schedule_decided on tarry.schedule (decided_at) where wake_at is not null;

-- The verdict on each tick, written in the transaction of its message: a tick that is here is never fired again, by any process
-- with any clock. Ledger, hash and tick are columns and compared as such; keys are never parsed.
create table tarry.tick (
    ledger text collate "C" not null,
    hash text collate "C" not null,
    tick timestamptz not null,
    until timestamptz,  -- the last one of a run of skipped ticks; null: a single tick
    count int,
    verdict text not null check (verdict in ('planned', 'skipped', 'withdrawn', 'triggered', 'backfilled')),
    reason text not null,
    decided_at timestamptz not null,
    due_at timestamptz,
    version bigint,
    queue int,
    key text collate "C"
);
create unique index tick_once on tarry.tick (ledger, tick, hash) where until is null;
create index tick_run on tarry.tick (ledger, tick) where until is not null;
-- Old entries are deleted in this order: by the later of the tick and its verdict.
create index tick_over on tarry.tick (greatest(decided_at, coalesce(until, tick)));

-- What was deleted from the ledger of each configuration: its ticks up to `until` were decided, unless they are still in the
-- ledger. They are never fired again, also not by a backfill.
create table tarry.tick_forgotten (
    ledger text collate "C" not null,
    hash text collate "C" not null,
    until timestamptz not null,
    primary key (ledger, hash)
);

-- `name` is what `tick.ledger` and `tick_forgotten.ledger` hold. The first ledger of a schedule has the name of the schedule;
-- later ones have names of more than 200 characters, which no schedule has.
create table tarry.ledger (
    name text collate "C" primary key,
    schedule text collate "C" not null,
    queue text not null,  -- the queue of its schedule, or of the last one: whose it is
    installed_at timestamptz not null
);
create index ledger_owner on tarry.ledger (schedule, queue, installed_at);

-- API keys of the broker, and the audit of what was done with them.

create table tarry.api_key (
    id text primary key check (id ~ '^[0-9a-f]{12}$'),
    name text not null,
    secret_hash bytea not null check (octet_length(secret_hash) = 32),  -- SHA-256: the key itself is not stored
    actions text[] not null check (cardinality(actions) > 0 and actions <@ array['read', 'produce', 'consume', 'admin']),
    queues text[] not null check (cardinality(queues) > 0),  -- names, or beginnings of names followed by *
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz  -- a revoked key stays, so that the audit can name it
);

-- Written before the action, completed with its status: there is no action without a row.
create table tarry.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text not null,
    action text not null,
    queue text,
    detail jsonb,
    request_id text,
    status int
);

-- Responses to requests with an idempotency key, stored in the transaction of the request: a repeated request gets the stored
-- response. The sweeper deletes them after a day.
create table tarry.stored_response (
    caller text collate "C" not null,  -- id of the API key; empty without one
    key text collate "C" not null check (char_length(key) between 1 and 200),
    fingerprint bytea not null check (octet_length(fingerprint) = 32),
    status smallint not null,
    body bytea not null,
    at timestamptz not null,
    primary key (caller, key)
);
create index stored_response_at on tarry.stored_response (at);

-- The data pipeline: which jobs ran, and which part of the journal is in which lake.

create table tarry.pipeline_run (
    id bigint generated always as identity primary key,
    job text not null,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    state text not null default 'running' check (state in ('running', 'done', 'failed', 'lost')),
    summary jsonb not null default '{}',
    error text
);
create index pipeline_run_job on tarry.pipeline_run (job, id);

create sequence tarry.archive_batch_seq as bigint;

-- One row per directory `events/batch=N` of a lake. A row is inserted before the first file is written, and has what
-- the files must contain; a number is used by one run only, so two runs never write into one directory. Readers read the
-- `files` of durable and pruned batches only.
create table tarry.archive_batch (
    batch bigint primary key,  -- from archive_batch_seq
    lake text not null,
    kind text not null check (kind in ('archive', 'compaction')),
    position bigint not null,  -- in the chain of windows; a compaction has the position of the last batch that it replaces
    state text not null default 'planned' check (state in ('planned', 'durable', 'pruned', 'abandoned', 'replaced')),
    system_id text not null,  -- of the cluster whose transaction numbers the edges speak of
    from_edge jsonb not null,  -- snapshot, and where it is the middle of a window: base, xid, id
    to_edge jsonb not null,
    rows bigint not null default 0,
    checksum numeric not null default 0,  -- the sum of event_hash over the rows, modulo 2^64
    files jsonb not null default '[]',
    days date[] not null default '{}',
    min_at timestamptz,
    max_at timestamptz,
    run bigint,
    planned_at timestamptz not null default clock_timestamp(),
    durable_at timestamptz,
    replaced_by bigint,
    replaced_at timestamptz,
    cleared_at timestamptz  -- when the files of an abandoned or replaced batch were deleted
);
-- One run at a time may be writing into a lake: the second one meets this index.
create unique index archive_batch_planned on tarry.archive_batch (lake) where state = 'planned';
create unique index archive_batch_chain on tarry.archive_batch (lake, position) where state in ('durable', 'pruned');

-- A day's account with a lake. archived − pruned is what the journal must still have of what was archived;
-- archived − retired is what the lake must have. The lake '' has the days that were pruned without one.
create table tarry.archive_day (
    lake text not null,
    day date not null,
    rows bigint not null default 0,
    checksum numeric not null default 0,
    pruned_rows bigint not null default 0,
    pruned_checksum numeric not null default 0,
    retired_rows bigint not null default 0,
    retired_checksum numeric not null default 0,
    pruned_xid xid8,  -- the last transaction of which rows were pruned: a stream that has not read it cannot go on
    primary key (lake, day)
);

-- Queues whose history in a lake begins late: retention has removed what was before, or the journal had been pruned when
-- the lake was begun.
create table tarry.archive_horizon (
    lake text not null,
    queue int not null,
    before date not null,  -- events of earlier days are not in the lake
    primary key (lake, queue)
);

-- A number for all values of a row; the sum over many rows, modulo 2^64, is their digest, whatever the order.
-- Spark computes the same from the files of the lake (`event_hash` in edges/spark/lake/lake.py). It costs three times as much
-- as PostgreSQL's own hash functions (10 µs an event), but Spark has none of those. Not the queue's name, which can change.
create function tarry.event_hash(e tarry.event) returns bigint language sql stable parallel safe as $$
    select ('x' || encode(substr(sha256(convert_to(concat_ws('|',
        e.id, e.xid, encode(timestamptz_send(e.at), 'hex'), e.kind, e.queue, coalesce(e.key, '-'),
        coalesce(e.version::text, '-'), coalesce(e.attempt::text, '-'), coalesce(e.priority::text, '-'),
        coalesce(encode(timestamptz_send(e.due_at), 'hex'), '-'),
        coalesce(encode(timestamptz_send(e.leased_at), 'hex'), '-'),
        coalesce(encode(timestamptz_send(e.lease_until), 'hex'), '-'),
        coalesce(e.consumer, '-'), coalesce(e.size::text, '-'), coalesce(encode(e.payload_hash, 'hex'), '-'),
        coalesce(e.error, '-'), coalesce(e.detail::text, '-'), coalesce(encode(sha256(e.payload), 'hex'), '-')
    ), 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- Drops the partition of one day, if it has exactly the rows that were found to be archived (`expected` null: whatever it
-- has). Null if it has others now, or if the locks cannot be had at once: writers must not queue up behind us. The partition is locked against writers first,
-- and counted; only then, and for a moment, the whole journal. We give up before PostgreSQL would look for a deadlock.
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
    -- Without a lake, the account of a day records only that it was pruned: a reader that has not read it has a gap.
    insert into tarry.archive_day (lake, day, rows, pruned_rows, pruned_xid)
    select '', journal_drop.day, found, found, last
    where found > 0 and not exists (select from tarry.archive_day a where a.day = journal_drop.day);
    return found;
end $$;

-- The bulk sink: rows wait in a staging table until the driver merges them in one transaction. The outcome of a write is stored
-- under its id, so that repeating it does nothing.

create table tarry.sink_write (
    id bigint generated always as identity primary key,
    write_id text collate "C" not null unique check (char_length(write_id) between 1 and 200),
    state text not null check (state in ('staging', 'committed', 'aborted')),
    rows bigint not null default 0,
    created bigint not null default 0,
    updated bigint not null default 0,
    ignored bigint not null default 0,
    superseded bigint not null default 0,
    started_at timestamptz not null,
    committed_at timestamptz,
    -- Of a streaming query: which, and which of its batches. Only the last batch of a query can be repeated.
    stream text,
    batch bigint,
    check ((state = 'committed') = (committed_at is not null)),
    check ((stream is null) = (batch is null))
);
create index sink_write_stream on tarry.sink_write (stream, batch) where stream is not null;

-- One try of one task. Only the tries that the driver names are merged; what the others left is swept. Of a write that stores its
-- tasks one by one, the tries that are stored have their task, and stay until the write is committed.
create table tarry.sink_attempt (
    id bigint generated always as identity primary key,
    write bigint not null,
    run uuid not null,  -- one execution of the write: its abort must not touch what a second driver is staging
    started_at timestamptz not null,
    part int,
    rows bigint,
    created bigint,
    updated bigint,
    superseded bigint,
    digest numeric,  -- of its rows: only the same rows are the same task
    check (num_nulls(part, rows, created, updated, superseded, digest) in (0, 6))
);
create index sink_attempt_write on tarry.sink_attempt (write, run);
create unique index sink_attempt_part on tarry.sink_attempt (write, part) where part is not null;

-- Unlogged: it costs no WAL, and a crash empties it. The merge counts before it trusts. No index by key: the merge sorts
-- once, which is a fraction of what keeping an order under COPY and reading the heap in that order would cost.
create unlogged table tarry.sink_row (
    attempt bigint not null,
    due_at timestamptz,
    after_s float8,  -- seconds after the merge; one of the two is null
    part int not null,  -- of the data frame
    seq int not null,  -- within its part
    max_attempts int,
    priority smallint not null,
    queue text collate "C" not null,
    key text collate "C" not null,
    payload bytea not null,
    content_type text,
    type text,
    headers jsonb,
    generated boolean not null  -- its key
) with (autovacuum_vacuum_cost_delay = 0);
create index sink_row_attempt on tarry.sink_row (attempt);

-- Results of the pipeline, for dashboard, API and command line, and its progress.
-- Every row that people read has the run that wrote it and how fresh it is; a row that a later run finds unchanged is left
-- alone, so `fresh_at` is the age of its values. Queues are named by id, because names change; the name stands beside.

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
    discarded bigint not null,
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

-- How far the derived tables of a lake have come: the last completed round, and the one that was planned before anything of
-- it was written. A round has the events that are visible in its snapshot and not in that of the round before.
create table tarry.lake_round (
    lake text not null,
    number bigint not null,
    position bigint not null,  -- in the chain of batches
    snapshot text not null,
    system_id text not null,
    is_done boolean not null default false,
    done_at timestamptz,
    primary key (lake, number)
);
create unique index lake_round_planned on tarry.lake_round (lake) where not is_done;
-- Live and dead messages of a queue after the last completed round.
create table tarry.queue_level (
    lake text not null,
    queue_id int not null,
    depth bigint not null,
    dead bigint not null,
    primary key (lake, queue_id)
);

-- For reading with SQL: with the current name of the queue.
create view tarry.metrics as
    select q.name as queue_name, m.* from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id;
create view tarry.consumers as
    select q.name as queue_name, c.* from tarry.consumer_hour c left join tarry.queue q on q.id = c.queue_id;
create view tarry.forecasts as
    select q.name as queue_name, f.* from tarry.forecast f left join tarry.queue q on q.id = f.queue_id;

-- Anomalies, their acknowledgements and mutes, and the usual values.

-- One row per thing found, however often it is found again: the fingerprint decides. A run that looks at the same time
-- again updates its values, never its acknowledgement.
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
    is_false_positive boolean not null default false,  -- raises the threshold of its detector for its queue
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

-- For reading with SQL: with the current name of the queue.
create view tarry.anomalies as
    select q.name as queue_name, a.* from tarry.anomaly a left join tarry.queue q on q.id = a.queue_id;

-- Rollups of the journal: what happened per queue in each slice of time, so that dashboards never scan the journal. Sweepers
-- and dashboards add new events, each event once.

-- Up to where events were added. One row, which is also the lock of the process that adds.
create table tarry.rollup_head (
    is_head boolean primary key default true check (is_head),
    snapshot pg_snapshot not null,
    at timestamptz not null
) with (fillfactor = 50);
insert into tarry.rollup_head (snapshot, at) values (pg_current_snapshot(), clock_timestamp());

-- Each event counts in one slice of every width, so that a week needs no more rows than an hour; and in one of queue 0, which has
-- the sums over all queues.
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
    last_xid bigint,  -- the last transaction that has events of the slice: where the journal is read from
    primary key (width, start_at, queue)
) with (fillfactor = 50);

-- How long first deliveries were late, and how long attempts took: n[i] durations in bucket buckets[i], in ascending order; bucket b
-- has durations up to 2^(b/4) milliseconds. Queue 0 has the sums over all queues.
create table tarry.rollup_time (
    width int not null,
    start_at timestamptz not null,
    queue int not null,
    measure text not null check (measure in ('lag', 'work')),
    buckets smallint[] not null,
    n int[] not null,
    primary key (width, start_at, queue, measure)
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

-- How many messages of each state a queue had at the end of a slice, as sampled; null: too many to count. Queue 0 has the sums
-- over all queues, also where no queue has a row, because it had no messages.
create table tarry.rollup_depth (
    width int not null,
    start_at timestamptz not null,
    queue int not null,
    delayed bigint,
    ready bigint,
    leased bigint not null,
    primary key (width, start_at, queue)
);

-- Jobs of the dashboard that change all messages that match a search.

create table tarry.bulk_job (
    id bigint generated always as identity primary key,
    verb text not null check (verb in ('deliver', 'bury', 'drop')),
    query text not null,
    queues text[] not null,  -- those that the caller may change
    error text,
    started_by text not null,
    state text not null check (state in ('running', 'done', 'cancelled', 'failed')),
    reason text,
    changed bigint not null default 0,
    skipped bigint not null default 0,
    after_due_at timestamptz,  -- where the next page begins, with after_version
    after_version bigint,
    step bigint not null default 0,  -- compare-and-set: one process does a step
    created_at timestamptz not null,
    updated_at timestamptz not null,
    ended_at timestamptz
);
-- For the sweeper, which continues jobs whose process has ended.
create index bulk_job_running on tarry.bulk_job (updated_at) where state = 'running';
