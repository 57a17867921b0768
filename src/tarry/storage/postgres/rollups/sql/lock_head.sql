-- Lock the head for adding events; no row if another process has it. No process waits for it. `current` bounds the next window.
select snapshot::text as snapshot, pg_current_snapshot()::text as current
from tarry.rollup_head
for update skip locked
