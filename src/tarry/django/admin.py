"""The list of queues in Django's admin, with their counts and a link to the dashboard."""
# pyright: basic

from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from tarry.django import app, settings
from tarry.django.models import Queue


@admin.register(Queue)
class QueueAdmin(admin.ModelAdmin):
    list_display = ("name", "state", "messages", "dashboard")
    list_display_links = None
    search_fields = ("name",)

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).using(settings().database).filter(deleted_at=None)

    def messages(self, queue: Queue) -> str:
        counts = app().queues.counts(str(queue.name))
        return ", ".join(f"{getattr(counts, state)} {state}" for state in ("delayed", "ready", "leased", "dead"))

    def state(self, queue: Queue) -> str:
        return "running" if queue.paused_at is None else "paused"

    def dashboard(self, queue: Queue) -> Any:
        address = settings().dashboard
        return "" if address is None else format_html('<a href="{}/queues/{}">open</a>', address, queue.name)

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False
