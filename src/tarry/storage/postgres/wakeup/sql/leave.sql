-- Nobody of this process waits any more: in one queue, or anywhere. Not if it has just gone to sleep again.
delete from tarry.waiter w
where w.who = %(who)s
  and (%(queue)s::text is null
    or w.queue = (select id from tarry.queue where name = %(queue)s and deleted_at is null) and w.type = %(type)s
      and w.renewed_at < clock_timestamp() - interval '1 second')
