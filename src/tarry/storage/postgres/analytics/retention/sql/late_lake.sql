-- Record the start of a lake's history if the journal was pruned before. Executed when the lake is created.
insert into tarry.archive_horizon (lake, queue, before)
select %(lake)s, q.id, (select max(day) + 1 from tarry.archive_day where pruned_rows > 0)
from tarry.queue q
where exists (select from tarry.archive_day where pruned_rows > 0)
  and not exists (select from tarry.archive_batch where lake = %(lake)s and state <> 'abandoned')
on conflict do nothing
