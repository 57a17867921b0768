-- Dead letters by what they died of, redrives as jobs, one leader at a time, and expiries that a sweeper has told.

-- A version of Tarry that knows nothing of fingerprints leaves them out, and so does whoever buries with SQL alone:
-- whoever looks at the groups next fills them in.
alter table tarry.dead_letter add column fingerprint text collate "C";
-- `queue + 0` as in message_order: a question about a group has no other way, and one about the order cannot take this one.
create index dead_letter_group on tarry.dead_letter ((queue + 0), fingerprint, died_at, version);

-- The token stays with a lease that has run out, so that a late ack still counts; this says that the journal knows.
alter table tarry.message add column expired_at timestamptz;

-- One redrive by filter. Whoever carries it on says which `step` it believes to be the next: of two, one finds it taken.
create table tarry.redrive_job (
    id bigint generated always as identity primary key,
    request uuid not null unique,  -- said twice, because an answer was lost, it is still one job
    queue int not null,
    fingerprint text collate "C",
    type text,
    died_from timestamptz,
    died_to timestamptz,
    key_prefix text collate "C",
    versions bigint[],
    rate float8 check (rate > 0),  -- messages a second
    canary int not null check (canary >= 0),
    state text not null check (state in ('running', 'paused', 'cancelled', 'done', 'failed')),
    phase text not null check (phase in ('canary', 'verdict', 'rest')),
    reason text,
    who text,
    total bigint not null,  -- what matched when it began, as far as it was counted
    total_capped boolean not null,
    redriven bigint not null default 0,
    skipped bigint not null default 0,
    canaries bigint[] not null default '{}',  -- versions under which they live again, and their keys
    canary_keys text[] collate "C" not null default '{}',
    before_version bigint not null,  -- what it revived itself, and dies again, is not its business
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

-- Who does what only one may do. The fence grows with every change of hands, and rows stay: it never starts again.
create table tarry.leader (
    name text primary key,
    holder text not null,
    fence bigint not null,
    since_at timestamptz not null,
    lease_until timestamptz not null
);
