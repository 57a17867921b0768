-- Delete the attempts of a write: of one run (`own`), of all other runs or, once the write is committed, of all. What is being
-- merged or staged is waited for; see `empty`. A task that is already stored stays recorded until its write is committed.
delete from tarry.sink_attempt a using tarry.sink_write w
where w.write_id = %(write_id)s and a.write = w.id and (w.state = 'committed' or a.part is null)
  and (%(run)s::uuid is null or (a.run = %(run)s) = %(own)s)
returning a.id
