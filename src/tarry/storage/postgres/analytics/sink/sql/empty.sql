-- Delete the rows of deleted attempts. A statement of its own: its snapshot has the rows that a task committed while the deletion
-- of its attempt waited for it. That of the deletion has not, and rows without an attempt would stay.
delete from tarry.sink_row where attempt = any (%(attempts)s::bigint[])
