"""The names of what is measured: keys of the results, titles of the tables."""

OFFER_ONE = "offer, one by one"
CONSUME_ONE = "poll + ack, one by one"
CONSUME_LOOP = "consume + ack, one by one"
CONSUME_CROWD = "consume + ack, one by one, several consumers"
OFFER_MANY = "offer_many, generated keys"
CONSUME_MANY = "poll_many + ack_many"
OFFER_MANY_KEYED = "offer_many, the caller's random keys"
OFFER_BULK = "offer_many, large (COPY)"
AWAIT_OFFER = "await offer, many tasks"
AWAIT_ACK = "await ack, many tasks"
HELD = "held snapshot: offer_many, poll_many, ack_many of 100"
POLL_IN_FLIGHT = "poll, messages in flight"
POLL_FUTURE = "poll, future messages"
POLL_READY = "poll, ready messages"

OFFER_MANY_BEFORE = "offer_many, 1,000, beside the earlier commit"
CONSUME_MANY_BEFORE = "poll_many + ack_many, 1,000, beside the earlier commit"
WORKERS = {f"worker, {concurrency} at once": concurrency for concurrency in (64, 256)}
BROKER = {f"single offers to the broker, {tasks} at once (client µs: the broker's)": tasks for tasks in (1, 5, 16)}

EMPTY = ", empty"
"""Behind a contender's name: the same poll with nothing in its way."""
