"""A shop on FastAPI, SQLAlchemy and Tarry: orders that time out, reminders, a payment provider that fails, a nightly report,
a producer in Node, a rolling deploy. `python -m examples.shop` runs all of it and checks the result."""
