-- Stored findings, without those that were found again. Detectors of minutes have judged all that is between two instants: what
-- they no longer find there is gone.
select stored.*
from {stored} stored
left anti join {findings} found on found.fingerprint = stored.fingerprint
where not (array_contains(split(:by_minute, ','), detector) and window_from >= timestamp(:since) and window_from < timestamp(:until))
