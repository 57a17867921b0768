-- The payload of a message is in its offer event; that of a redriven message is in the offer event of its root.
with bodies as (
    select version as root, max_by(struct(payload, detail), id) as kept
    from {events}
    where payload is not null
    group by version
), rooted as (
    select message.*, coalesce(roots.root, message.version) as root
    from {messages} message
    left join {roots} roots on roots.queue_id = message.queue_id and roots.version = message.version
)
select rooted.*, kept.payload, get_json_object(kept.detail, '$.type') as type,
    get_json_object(kept.detail, '$.content_type') as content_type, get_json_object(kept.detail, '$.headers') as headers
from rooted
left join bodies on bodies.root = rooted.root
