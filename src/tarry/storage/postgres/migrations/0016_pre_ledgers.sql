-- A ledger of ticks belongs to a queue and an installation: a later owner of a prefix gets a ledger of its own.

-- `name` is what `tick.prefix` and `tick_forgotten.prefix` hold. The first ledger of a prefix is named like it, so the table of
-- ticks stays as it is; later ones have names of more than 200 characters, which no prefix has.
create table tarry.ledger (
    name text collate "C" primary key,
    prefix text collate "C" not null,
    queue text not null,  -- the queue of its schedule, or of the last one: whose it is
    installed_at timestamptz not null
);
create index ledger_owner on tarry.ledger (prefix, queue, installed_at);
alter table tarry.schedule add column ledger text collate "C";  -- null: installed by an older version, and named like it

insert into tarry.ledger (name, prefix, queue, installed_at)
select prefix, prefix, queue, installed_at from tarry.schedule;
update tarry.schedule set ledger = prefix;

-- Of schedules that are gone: the queue of the last message. Where there was none, nobody comes back for the ledger.
insert into tarry.ledger (name, prefix, queue, installed_at)
select distinct on (t.prefix) t.prefix, t.prefix, coalesce(q.name, ''), t.decided_at
from tarry.tick t left join tarry.queue q on q.id = t.queue
order by t.prefix, q.name is null, t.tick desc
on conflict do nothing;
insert into tarry.ledger (name, prefix, queue, installed_at)
select distinct f.prefix, f.prefix, '', f.until from tarry.tick_forgotten f
on conflict do nothing;
