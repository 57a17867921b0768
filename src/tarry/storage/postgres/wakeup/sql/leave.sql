-- Delete the waiter rows of this process, of one queue or of all, unless it has just started to sleep again.
delete from tarry.waiter w
where w.process = %(process)s
  and (%(queue)s::text is null
    or w.queue = (select id from tarry.queue where name = %(queue)s and deleted_at is null) and w.type = %(type)s
      and w.renewed_at < clock_timestamp() - interval '1 second')
