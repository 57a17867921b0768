-- Each tally once for every judged date within some days after it; seen_on is its own date.
select tally.* except (date), tally.date as seen_on, judged.date
from {tallies} tally
join (select explode(transform(split(:dates, ','), day -> date(day))) as date) judged
    on date_diff(judged.date, tally.date) between 1 and :days
