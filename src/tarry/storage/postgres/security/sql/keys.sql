-- The API keys with these ids, or all, oldest first.
select
    -- include: security/_key
from tarry.api_key
where %(ids)s::text[] is null or id = any(%(ids)s::text[])
order by created_at, id
