"""Broker client: the same operations as on a database, over HTTP.

with tarry.http.Client("http://localhost:8080", key="tarry_…") as client:
    client.queue("orders").offer("order-17", {"total": 40})
"""

from tarry.core.extras import needs_extra

with needs_extra("http", "the broker client"):
    from tarry._sync.clients import Client
    from tarry.clients import AsyncClient

__all__ = ["AsyncClient", "Client"]
