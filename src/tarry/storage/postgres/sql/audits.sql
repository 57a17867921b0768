-- What was done, the newest first.
select id, at, actor, action, queue, detail, request_id, status from tarry.audit order by id desc limit %(limit)s::int
