-- Delete the staged rows of a write: of one run or, once the write is committed, of all.
with gone as (
    delete from tarry.sink_attempt a using tarry.sink_write w
    where w.write_id = %(write_id)s and a.write = w.id and (%(run)s::uuid is null or a.run = %(run)s)
    returning a.id
), emptied as (
    delete from tarry.sink_row where attempt = any (array(select id from gone))
)
select count(*) from gone
