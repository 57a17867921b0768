-- The rows of one queue or of all; with names and prefixes, only of queues that the reader may see. For `m left join
-- tarry.queue q`.
(%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
and (%(names)s::text[] is null or coalesce(q.name, m.queue) = any (%(names)s::text[])
     or exists (select from unnest(%(prefixes)s::text[]) p where starts_with(coalesce(q.name, m.queue), p)))
