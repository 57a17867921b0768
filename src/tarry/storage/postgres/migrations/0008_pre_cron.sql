-- Cron: schedules, and the ledger of what was decided about their ticks.

-- One row per prefix: its configuration, and how far its planning has come. Every change raises `revision`, and is made by
-- somebody who has read the one before: that is what keeps any number of schedulers from doing anything twice.
create table tarry.schedule (
    prefix text collate "C" primary key check (char_length(prefix) between 1 and 200),
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
    ruled_at timestamptz not null,
    installed_at timestamptz not null,
    paused_at timestamptz,
    paused_reason text
);
create index schedule_wake on tarry.schedule (wake_at) where wake_at is not null;
-- A row that was ruled at an hour that is yet to come: the clock was set back.
create index schedule_ruled on tarry.schedule (ruled_at) where wake_at is not null;

-- What was decided about each tick, in the transaction of its message: a tick that is here is never made again, by
-- whomever, with whatever clock. Prefix, hash and tick are columns and compared as such; keys are never taken apart.
create table tarry.tick (
    prefix text collate "C" not null,
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
create unique index tick_once on tarry.tick (prefix, tick, hash) where until is null;
create index tick_run on tarry.tick (prefix, tick) where until is not null;
