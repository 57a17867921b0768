-- A worker has ended.
delete from tarry.worker where id = %(id)s::text
