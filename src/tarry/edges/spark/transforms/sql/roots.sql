-- A message can die and be redriven many times. Per key, in the order of ids, each version is mapped to the root of its origin.
-- Only redrives are visited: a key that is offered often has few of them, and each step copies a map.
with chains as (
    select queue_id, key, array_sort(collect_list(struct(
        id, version, bigint(get_json_object(detail, '$.from_version')) as from_version))) as chain
    from {events}
    where kind = 'redriven'
    group by queue_id, key
)
select queue_id, explode(aggregate(
    chain, cast(map() as map<bigint, bigint>),
    (seen, each) -> map_concat(seen, map(each.version, coalesce(seen[each.from_version], each.from_version)))
)) as (version, root)
from chains
