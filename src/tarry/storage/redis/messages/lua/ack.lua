-- Finish messages: row, payload and set members are removed, and the event appended, in one script.
-- include: lua/_settle
local leased = {leased = true}
return settle('ack', function(row)
  note('acked', row, leased, row.packed)
  remove(row)
end)
