-- The last matching event of each key, or of each version of it.
with selected as (
    select queue_id, max_by(struct(queue, key, version, priority, id), id) as last
    from {events}
    where kind in {kinds} and key is not null and (:since is null or at >= timestamp(:since))
        and (:until is null or at < timestamp(:until))
        and (:keys is null or array_contains(from_json(string(:keys), 'array<string>'), key))
        and (:key_prefix is null or startswith(key, string(:key_prefix)))
    group by queue_id, if(:every_version, string(version), key)
)
select queue_id, last.* from selected
