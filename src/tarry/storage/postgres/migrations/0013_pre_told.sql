-- Where the journal keeps payloads it also keeps what is needed to read and to route them: without its content type a text
-- "17" would be replayed as a number, and without its type no handler would ask for it. Null where there is nothing to say.
create function tarry.told(type text, content_type text, headers jsonb) returns jsonb
language sql immutable parallel safe as $$
    select nullif(
        jsonb_strip_nulls(jsonb_build_object('type', type, 'content_type', content_type, 'headers', headers)), '{}')
$$;
