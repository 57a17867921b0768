-- Audit entries before a row, newest first, filtered by parts of actor and action. Relies on the primary key; the number of
-- scanned rows is limited.
select * from (
    select id, at, actor, action, queue, detail, request_id, status from tarry.audit
    where id < %(before)s::bigint order by id desc limit %(searched)s::int
) recent
where (%(actor)s::text = '' or strpos(lower(actor), lower(%(actor)s)) > 0)
  and (%(action)s::text = '' or strpos(lower(action), lower(%(action)s)) > 0)
order by id desc limit %(limit)s::int
