-- Dead letters by fingerprint, most recent death first. One descent along dead_letter_group finds each group, and no group is
-- counted beyond `cap`: a million dead letters take as long as a thousand. At most `most` groups are read. Types and attempts
-- are those of the newest letters.
with recursive q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
), named as (
    (select d.fingerprint, 1 as n from tarry.dead_letter d
     where (d.queue + 0) = (select id from q) and d.fingerprint is not null
     order by d.fingerprint limit 1)
    union all
    select (select d.fingerprint from tarry.dead_letter d
            where (d.queue + 0) = (select id from q) and d.fingerprint > g.fingerprint
            order by d.fingerprint limit 1), g.n + 1
    from named g where g.fingerprint is not null and g.n < %(most)s::int
), freshest as materialized (
    select g.fingerprint, newest.*
    from named g cross join lateral (
        select d.died_at, d.version, d.key, d.reason, d.error from tarry.dead_letter d
        where (d.queue + 0) = (select id from q) and d.fingerprint = g.fingerprint
        order by d.died_at desc, d.version desc limit 1) newest
    order by newest.died_at desc, newest.version desc
    limit %(limit)s::int
)
select g.fingerprint, g.reason, g.error, oldest.died_at as first_died_at, g.died_at as last_died_at, g.version as example,
    jsonb_build_object('n', least(counted.n, %(cap)s::int - 1), 'capped', counted.n = %(cap)s::int) as count,
    g.key as example_key, sample.types, sample.fewest as fewest_attempts, sample.most as most_attempts
from q left join (
    freshest g
    cross join lateral (select d.died_at from tarry.dead_letter d
        where (d.queue + 0) = (select id from q) and d.fingerprint = g.fingerprint
        order by d.died_at, d.version limit 1) oldest
    cross join lateral (select count(*) as n from (
        select from tarry.dead_letter d where (d.queue + 0) = (select id from q) and d.fingerprint = g.fingerprint
        order by d.died_at, d.version limit %(cap)s::int) c) counted
    cross join lateral (select coalesce(array_agg(distinct s.type collate "C") filter (where s.type is not null), '{}') as types,
            min(s.attempt) as fewest, max(s.attempt) as most
        from (select d.type, d.attempt from tarry.dead_letter d
            where (d.queue + 0) = (select id from q) and d.fingerprint = g.fingerprint
            order by d.died_at desc, d.version desc limit 1000) s) sample
) on true
order by g.died_at desc, g.version desc
