-- Finish messages: the row, the payload and its place in the order go with the event, or not at all.
-- include: lua/_settle
return settle('ack', function(row)
  note('acked', row, {leased = true})
  remove(row)
end)
