-- `allowed`: predecessor>kind, with - for none.
select *
from {sequence}
where not (
    concat(coalesce(before, '-'), '>', kind) in {allowed}
        and (before is null or kind in {new_version} or version <=> version_before)
    or before is null and array_contains(split(:truncated, ','), string(queue_id))
)
