-- Bury messages by their leases: the dead letter is stored and the live row removed in one script.
-- include: lua/_settle
return settle('bury', function(row) bury(row, a.reason, a.error) end)
