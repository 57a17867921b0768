"""The state of models that Django does not manage; their tables come from `manage.py migrate` by a signal, see `apps`."""
# pyright: basic

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("lease_for", models.DurationField()),
                ("max_attempts", models.IntegerField(null=True)),
                ("max_depth", models.IntegerField(null=True)),
                ("description", models.TextField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("deleted_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": 'tarry"."queue',
                "managed": False,
                "default_permissions": ("view",),
                "ordering": ("name",),
            },
        ),
    )
