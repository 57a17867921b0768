-- Which of these keys are live, and who holds them: tells a lost lease from a message that is gone, and both from one
-- that was only touched while we looked. Relies on message_key.
select m.key, m.token
from tarry.message m
where m.key = any (%(keys)s::text[])
  and m.queue = (select id from tarry.queue where name = %(queue)s and deleted_at is null)
