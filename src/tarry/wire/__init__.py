"""The JSON form of each entity, once: for the broker, its client, `--json`, export and import, and the OpenAPI document.

Responses are structs with `of(core value)` and `core()`: instants are RFC 3339 text with microseconds, durations are
seconds. Requests are structs of core values, which the broker and the import validate."""
