-- Store missing fingerprints. In version order, so that concurrent callers cannot deadlock.
with
-- include: maintenance/_leadership
, locked as materialized (
    select d.version from tarry.dead_letter d
    where d.version = any (%(versions)s::bigint[]) and d.fingerprint is null
      and (%(leader)s::text is null or exists (select from leadership))
    order by d.version
    for update skip locked
)
update tarry.dead_letter d set fingerprint = f.fingerprint
from unnest(%(versions)s::bigint[], %(fingerprints)s::text[]) as f(version, fingerprint)
where d.version = f.version and d.version = any (array(select version from locked))
returning d.version
