-- Enable bitmap scans for the rest of this transaction: the store's connections disable them (connections.py), and event_find,
-- a BRIN index, needs them. Otherwise the planner would scan the whole journal.
select set_config('enable_bitmapscan', 'on', true) as bitmaps, set_config('enable_seqscan', 'off', true) as scans
