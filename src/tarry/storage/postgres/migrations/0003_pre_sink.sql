-- The bulk sink: rows wait in a staging table until the driver merges them, all at once; what became of a write is
-- remembered by its name, so that saying it again does nothing. New tables only: no lock that anybody would notice.

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
    -- Of a streaming query: which, and which of its batches. Only the last batch of a query can ever be said again.
    stream text,
    batch bigint,
    check ((state = 'committed') = (committed_at is not null)),
    check ((stream is null) = (batch is null))
);
create index sink_write_stream on tarry.sink_write (stream, batch) where stream is not null;

-- One try of one task. Only the tries that the driver names are merged; what the others left is swept.
create table tarry.sink_attempt (
    id bigint generated always as identity primary key,
    write bigint not null,
    run uuid not null,  -- one execution of the write: its abort must not touch what a second driver is staging
    started_at timestamptz not null
);
create index sink_attempt_write on tarry.sink_attempt (write, run);

-- Unlogged: it costs no WAL, and a crash empties it. The merge counts before it trusts. No index by key: the merge sorts
-- once, which is a fraction of what keeping an order under COPY and reading the heap in that order would cost.
create unlogged table tarry.sink_row (
    attempt bigint not null,
    due_at timestamptz,
    delay float8,  -- seconds after the merge; one of the two is null
    part int not null,  -- of the data frame
    place int not null,  -- within its part
    max_attempts int,
    priority smallint not null,
    queue text collate "C" not null,
    key text collate "C" not null,
    payload bytea not null,
    content_type text,
    type text,
    headers jsonb
) with (autovacuum_vacuum_cost_delay = 0);
create index sink_row_attempt on tarry.sink_row (attempt);
