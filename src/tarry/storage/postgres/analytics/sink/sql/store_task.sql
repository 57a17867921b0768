-- Record that the rows of a task are stored, in the transaction of their merge: the write does not offer them again.
with emptied as (
    delete from tarry.sink_row where attempt = %(attempt)s returning queue, key, payload, generated
)
update tarry.sink_attempt
set part = %(part)s, rows = %(rows)s, created = %(created)s, updated = %(updated)s, superseded = %(superseded)s,
    digest = (
        select
        -- include: analytics/sink/_digest
        from emptied r)
where id = %(attempt)s
