-- Whether a window has rows. Uses the index event_find for the range of transactions.
select exists (
    select from tarry.event e
    where
    -- include: analytics/windows/_in_window
)
