-- For the rest of this transaction: our connections go by trees only (connections.py), and event_find is read by bitmaps.
-- Without this the planner would walk the whole journal.
select set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'off', true)
