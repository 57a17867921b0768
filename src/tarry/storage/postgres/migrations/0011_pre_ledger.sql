-- The ledger forgets what is over, in the order in which it is over: the later of a tick and of its verdict.
create index tick_over on tarry.tick (greatest(decided_at, coalesce(until, tick)));

-- What the ledger has forgotten of each configuration: its ticks up to `until` were decided, unless they are still in the
-- ledger, and nobody can say how any more. So they are never made again, also not by a backfill.
create table tarry.tick_forgotten (
    prefix text collate "C" not null,
    hash text collate "C" not null,
    until timestamptz not null,
    primary key (prefix, hash)
);
