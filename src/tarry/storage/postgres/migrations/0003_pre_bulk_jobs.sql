-- Jobs of the dashboard that change all messages that match a search. A new table only: no lock on any other.

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
