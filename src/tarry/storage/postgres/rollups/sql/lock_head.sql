-- Become the process that adds events; no row: another one does. Nothing waits for it. `current` bounds the next window.
select snapshot::text as snapshot, pg_current_snapshot()::text as current
from tarry.rollup_head
for update skip locked
