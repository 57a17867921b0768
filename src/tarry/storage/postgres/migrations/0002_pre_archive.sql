-- The memory of the data pipeline: which jobs ran, and what of the journal is in which lake.

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

-- One row per directory `events/batch=N` of a lake. A row is inserted before the first file is written, and says what
-- the files must contain; a number is used by one run only, so two runs never write into one directory. Readers go by
-- `files` of durable and pruned batches: whatever else lies in the lake does not exist.
create table tarry.archive_batch (
    batch bigint primary key,  -- from archive_batch_seq
    lake text not null,
    kind text not null check (kind in ('archive', 'compaction')),
    place bigint not null,  -- in the chain of windows; a compaction has the place of the last batch that it replaces
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
create unique index archive_batch_chain on tarry.archive_batch (lake, place) where state in ('durable', 'pruned');

-- A day's account with a lake. archived − pruned is what the journal must still have of what was archived;
-- archived − retired is what the lake must have.
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

-- A number for everything that a row says; the sum over many rows, modulo 2^64, is their digest, whatever the order.
-- PostgreSQL's own hashes: a cryptographic one costs five times as much. They cannot change, hash partitioning depends on
-- them, and the lake computes the same from its files (`event_hash` there). Not the queue's name, which can change.
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

-- Drops the partition of one day, if it has exactly the rows that were found to be archived. Null if it has others now, or
-- if the locks cannot be had at once: writers must not queue up behind us. The partition is locked against writers first,
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
    return found;
end $$;
