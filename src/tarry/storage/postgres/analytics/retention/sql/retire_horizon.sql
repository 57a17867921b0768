-- Record the new start of a queue's history, so that older events are not expected.
insert into tarry.archive_horizon as h (lake, queue, before)
values (%(lake)s, %(queue)s, %(before)s)
on conflict (lake, queue) do update set before = greatest(h.before, excluded.before)
