#!lua
-- Store messages, one row per live key, and reply with one letter per draft: created, updated, ignored.
-- All or none, because nothing in it can fail after the first write. A full queue refuses all if one key is new.
-- `drafts` has what most messages of a batch have in common, and `uses` which of them each message has.
-- include: lua/_offer
return offer_all()
