-- For the rest of this transaction: our connections disable bitmap scans (connections.py), and event_find, a BRIN index,
-- needs them. Without this the planner would scan the whole journal.
select set_config('enable_bitmapscan', 'on', true) as bitmaps, set_config('enable_seqscan', 'off', true) as scans
