-- The jobs that run on a lake.
select distinct r.job from tarry.pipeline_run r
where r.state = 'running' and r.summary ->> 'lake' = %(lake)s and (
    -- include: analytics/_is_locked
)
order by 1
