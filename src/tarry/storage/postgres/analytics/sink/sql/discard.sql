-- Delete the staged rows of a write: of one run (`own`), of all other runs or, once the write is committed, of all. What is being
-- merged is waited for. A task that is already stored stays recorded until its write is committed.
with gone as (
    delete from tarry.sink_attempt a using tarry.sink_write w
    where w.write_id = %(write_id)s and a.write = w.id and (w.state = 'committed' or a.part is null)
      and (%(run)s::uuid is null or (a.run = %(run)s) = %(own)s)
    returning a.id, a.part
), emptied as (
    delete from tarry.sink_row where attempt = any (array(select id from gone where part is null))
)
select count(*) from gone
