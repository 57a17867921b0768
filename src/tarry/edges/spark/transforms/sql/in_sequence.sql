-- Writers of one key wait for each other's commits, so the visible events of a key are its first ones.
select *, lag(kind) over life as before, lag(version) over life as version_before,
    visible and not coalesce(lead(visible) over life, false) as is_last
from {events}
where key is not null and kind not in {neutral}
window life as (partition by queue_id, key order by id)
