-- Record that the rows of a task are stored, in the transaction of their merge: the write does not offer them again. The digest
-- reads the rows that are deleted here: with `returning` it would cost three times as much.
with emptied as (
    delete from tarry.sink_row where attempt = %(attempt)s
)
update tarry.sink_attempt
set part = %(part)s, rows = %(rows)s, created = %(created)s, updated = %(updated)s, superseded = %(superseded)s,
    digest = (
        select
        -- include: analytics/sink/_digest
        from tarry.sink_row r where r.attempt = %(attempt)s)
where id = %(attempt)s
