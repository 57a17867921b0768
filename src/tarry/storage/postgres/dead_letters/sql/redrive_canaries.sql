-- The outcomes of a redrive job's canaries: live with the redriven version, dead again (or redriven once more), or neither:
-- done, or replaced by a newer offer.
select c.key, exists (select from tarry.message m where m.key = c.key and m.queue = coalesce(j.target, j.queue) and m.version = c.version) as live,
    d.version is not null
        or exists (select from tarry.message m where m.key = c.key and m.queue = coalesce(j.target, j.queue) and m.origin = c.version) as dead,
    d.error
from tarry.redrive_job j
cross join lateral unnest(j.canaries, j.canary_keys) as c(version, key)
left join tarry.dead_letter d on d.version = c.version
where j.id = %(job)s
order by c.version
