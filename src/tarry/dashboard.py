"""The dashboard for applications that have their own ASGI server: `app.mount("/ops/queue", create_dashboard(…))`.

Needs the extra `http`. A broker has it at /dashboard.
"""

from tarry.core.extras import needs_extra

with needs_extra("http", "the dashboard"):
    from tarry.edges.dashboard.app import create_dashboard
    from tarry.edges.dashboard.redaction import Redaction
    from tarry.edges.dashboard.settings import DashboardSettings

__all__ = ["DashboardSettings", "Redaction", "create_dashboard"]
