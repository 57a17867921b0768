-- Finish messages: the row, the payload and its place in the order go with the event, or not at all.
-- include: lua/_settle
local leased = {leased = true}
return settle('ack', function(row)
  note('acked', row, leased, row.packed)
  remove(row)
end)
