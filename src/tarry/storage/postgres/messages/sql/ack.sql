-- Ack messages: delete the row and append the event in one transaction. Each is looked for at the place where it was leased.
-- What was not settled was not leased with this token, or was touched since, which moves it: see `ack_by_key`. Another row may
-- be at the place by now, so key and queue are compared; `is not distinct from` keeps the planner from searching by them.
-- Returns how many were settled, and which only if it was not all. One message joins its queue: to start the nodes that scan
-- `q` three times costs it more than all of its rows.
with q as materialized ( -- many
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null -- many
), done as ( -- many
-- one: with done as (
    delete from tarry.message m
    using unnest(%(keys)s::text[], %(tokens)s::bigint[], %(tids)s::tid[]) as h(key, token, tid)
    -- one: cross join tarry.queue q
    where m.ctid = h.tid and m.token = h.token and m.key is not distinct from h.key
      and m.queue is not distinct from (select id from q) -- many
      -- one: and m.queue is not distinct from q.id and q.name = %(queue)s and q.deleted_at is null
    -- include: messages/_acked
