-- Remember that the history of a queue begins here now, so that nobody looks for what was before.
insert into tarry.archive_horizon as h (lake, queue, before)
values (%(lake)s, %(queue)s, %(before)s)
on conflict (lake, queue) do update set before = greatest(h.before, excluded.before)
