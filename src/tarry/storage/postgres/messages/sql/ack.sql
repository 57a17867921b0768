-- Ack messages: delete the row and append the event in one transaction. Each row is found by the ctid of its lease.
-- A message that is not settled was not leased with this token, or was moved by a touch: see `ack_by_key`. Another row may have
-- this ctid now, so key and queue are compared; `is not distinct from` keeps the planner from searching by them.
-- Returns the number of settled messages, and their keys unless all were settled. The single-message variant joins its queue:
-- starting the three nodes that scan `q` would cost more than the rest of the statement.
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
