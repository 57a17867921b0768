"""Queues for Django's admin. Read-only: not managed by Django, and changed only by Tarry."""
# pyright: basic

from django.db import models


class Queue(models.Model):
    name = models.TextField(primary_key=True)
    lease_for = models.DurationField()
    max_attempts = models.IntegerField(null=True)
    max_depth = models.IntegerField(null=True)
    description = models.TextField(null=True)
    paused_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = 'tarry"."queue'  # with its schema; Django adds the outer quotes
        default_permissions = ("view",)
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)
