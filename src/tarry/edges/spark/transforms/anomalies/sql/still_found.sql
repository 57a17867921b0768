-- Stored findings, without those that were found again. Minute detectors have judged everything between two instants: findings
-- that they no longer report there are removed.
select stored.*
from {stored} stored
left anti join {findings} found on found.fingerprint = stored.fingerprint
where not (array_contains(split(:by_minute, ','), detector) and window_from >= timestamp(:since) and window_from < timestamp(:until))
