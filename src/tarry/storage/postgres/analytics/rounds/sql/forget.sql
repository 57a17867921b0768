-- Forget how far the derived tables of a lake have come: the next round begins with the first event and replaces them.
with rounds as (
    delete from tarry.lake_round where lake = %(lake)s
)
delete from tarry.queue_level where lake = %(lake)s
