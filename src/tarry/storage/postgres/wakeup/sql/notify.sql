-- Notify consumers that sleep beyond `due_at`. For offers of several steps; single statements notify themselves.
select pg_notify('tarry', %(queue)s::text || '/' || w.type) as notified
from tarry.waiter w
where w.queue = (select id from tarry.queue where name = %(queue)s and deleted_at is null) and w.type = ''
  and w.wakes_at > case when %(due_at)s::timestamptz <= coalesce(%(now)s::timestamptz, statement_timestamp())
    then coalesce(%(now)s::timestamptz, statement_timestamp()) - interval '1s' else %(due_at)s::timestamptz end
limit 1
