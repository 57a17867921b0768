-- Each minute with its score, in spreads from the median. Hours with little history are left out.
select series.*, median, sigma, p01, p99, (x - median) / sigma as score
from {series} series
join (select date, queue_id, metric, scale, hour, median, sigma, p01, p99 from {bands}) using (date, queue_id, metric, scale, hour)
