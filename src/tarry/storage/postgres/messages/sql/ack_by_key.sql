-- Ack messages whose rows have moved since they were leased. A message that is not settled was not leased with this token, or
-- was touched concurrently.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
),
-- include: messages/_held
, done as (
    delete from tarry.message m
    using held h
    where m.ctid = h.tid and m.token = h.token
    -- include: messages/_acked
