-- The foundation: queues, live messages, dead letters, and the journal of everything that happened to them.

create sequence tarry.version_seq as bigint;
create sequence tarry.event_seq as bigint;

create type tarry.journal_level as enum ('off', 'events', 'payloads');

create type tarry.event_kind as enum (
    'offered', 'updated', 'leased', 'touched', 'acked', 'nacked', 'released', 'refused', 'expired', 'buried',
    'redriven', 'dropped', 'edited', 'moved', 'purged', 'cron_planned', 'cron_replaced', 'queue_created', 'queue_edited',
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
    paused_at timestamptz,
    paused_reason text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz
);
create unique index queue_name on tarry.queue (name) where deleted_at is null;

-- Live messages only. A poll writes none of the indexed columns, and half of every page is left free, so the update
-- stays on its page (HOT) and touches no index. There are exactly two ways in, and no statement can take the wrong one:
-- by key, and by order. `queue + 0` keeps the planner from answering a question about a key with the order, or vice versa.
create table tarry.message (
    version bigint not null default nextval('tarry.version_seq'),
    due_at timestamptz not null,
    planned_at timestamptz not null,  -- due_at as it was offered: a retry moves due_at, and must not look like a change
    created_at timestamptz not null,
    queue int not null,
    priority smallint not null check (priority between 0 and 9),
    conflict smallint not null,  -- how it was offered: 0 replace, 1 keep, 2 earliest, 3 debounce
    lease_until timestamptz not null default '-infinity',
    leased_at timestamptz,
    attempt int not null default 0,
    lapsed boolean not null default false,  -- the lease before this one ran out
    token uuid,
    consumer text,
    key text collate "C" not null check (char_length(key) between 1 and 200),
    payload bytea not null,
    type text,
    content_type text,  -- null is JSON
    headers jsonb,
    lease_for interval,
    max_attempts int,
    retry float8[],
    due_limit timestamptz,  -- as far as debouncing may push it
    origin bigint,  -- the dead version it was redriven from
    last_error text
) with (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
create unique index message_key on tarry.message (key, queue);
create index message_order on tarry.message ((queue + 0), priority, due_at, version);
-- Paid only by messages that have a type: a poll for one type must not walk the backlog of the others.
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
    error text
);
create index dead_letter_order on tarry.dead_letter (queue, died_at, version);

-- Append only, one partition a day, dropped whole when it is archived. `xid` lets a reader ask for what was committed
-- between two snapshots; `id` is taken under the row lock of the message, so it orders the life of one key.
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
-- One small index for two questions: what was committed since (there is no BRIN class for xid8, so readers compare
-- `xid::text::bigint`), and the life of one key (a bloom filter). It costs no WAL per event; a tree costs 65 bytes.
create index event_find on tarry.event using brin ((xid::text::bigint), key text_bloom_ops)
    with (pages_per_range = 32, autosummarize = on);

-- Takes what no daily partition is there for, so that a missing partition can never stop the queue.
create table tarry.event_overflow partition of tarry.event default;

-- Makes the partition of one day, with what the overflow has of it. True if it was made now. The overflow is locked
-- while its rows move, since one that came in between would be in the way of the partition. Asked of pg_class, because
-- to_regclass answers from a cache that waiting for an advisory lock does not refresh.
create function tarry.journal_partition(day date) returns boolean language plpgsql as $$
declare
    part text := format('event_%s', to_char(day, 'YYYYMMDD'));
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('tarry.journal_partition'));
    if exists (select from pg_class where relname = part and relnamespace = 'tarry'::regnamespace) then
        return false;
    end if;
    execute format('create table tarry.%I (like tarry.event including defaults including storage)', part);
    lock table tarry.event_overflow in access exclusive mode;
    execute format(
        'with moved as (delete from tarry.event_overflow where at >= %L and at < %L returning *) '
        'insert into tarry.%I select * from moved', from_at, to_at, part);
    execute format('alter table tarry.event attach partition tarry.%I for values from (%L) to (%L)', part, from_at, to_at);
    -- An empty table is born with its first range summarised, and every event would rewrite that summary: 1.2 KB of WAL.
    perform brin_desummarize_range(i.indexrelid, 0)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = format('tarry.%I', part)::regclass and c.relam = (select oid from pg_am where amname = 'brin');
    return true;
end $$;

-- What `live_state` of the core says, for people who look with SQL.
create function tarry.message_state(m tarry.message, now timestamptz) returns text language sql stable as $$
    select case when m.lease_until > now then 'leased' when m.due_at > now then 'delayed' else 'ready' end
$$;

-- The journal as people read it.
create view tarry.journal as
    select e.id, e.xid, e.at, e.kind, q.name as queue, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
           e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail, e.payload
    from tarry.event e join tarry.queue q on q.id = e.queue;
