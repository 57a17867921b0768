-- Plan the next window of a lake before anything is written. Only if the chain still ends at the start of the window;
-- the unique index archive_batch_planned excludes a second planner.
insert into tarry.archive_batch (batch, lake, kind, position, system_id, from_edge, to_edge, run)
select n, %(lake)s, 'archive', n, %(system_id)s, %(from_edge)s, %(to_edge)s, %(run)s
from (select nextval('tarry.archive_batch_seq') as n) number
where %(from_edge)s = coalesce(
    (select to_edge from tarry.archive_batch where lake = %(lake)s and state in ('durable', 'pruned')
     order by position desc limit 1), %(beginning)s)
returning
-- include: analytics/archive/_batch
