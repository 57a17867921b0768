"""`tarry.django` in a real project; docs/howto/django.md is run as well, with its worker and its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

_SETTINGS = """
import os
from psycopg.conninfo import conninfo_to_dict

db = conninfo_to_dict(os.environ["PROJECT_DSN"])
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": db["dbname"], "USER": db.get("user", ""),
    "PASSWORD": db.get("password", ""), "HOST": db.get("host", ""), "PORT": db.get("port", ""),
}}
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
                  "django.contrib.messages", "tarry.django"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware",
              "django.contrib.auth.middleware.AuthenticationMiddleware",
              "django.contrib.messages.middleware.MessageMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {
    "context_processors": ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages"]}}]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["*"]
SECRET_KEY = "of a test"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TARRY = {"QUEUES": ["mails"], "DASHBOARD": "https://queues.example/dashboard"}
"""
_URLS = (
    "from django.contrib import admin\nfrom django.urls import path\nurlpatterns = [path('admin/', admin.site.urls)]\n"
)
_MANAGE = (
    "import os, sys\nfrom django.core.management import execute_from_command_line\n"
    "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'settings')\nexecute_from_command_line(sys.argv)\n"
)
_STORY = """
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client
import tarry.django

try:
    call_command("check", databases=["default"])
except SystemCheckError as error:
    assert "tarry.E001" in str(error) and "tarry db migrate" in str(error), error
else:
    raise AssertionError("the tables are missing, and no check reports it")
call_command("migrate", verbosity=0)
call_command("check", databases=["default"])
call_command("makemigrations", check_changes=True, dry_run=True)
tarry.django.app().queue("mails").offer("a", 1)
client = Client()
client.force_login(User.objects.create_superuser("ada"))
page = client.get("/admin/tarry/queue/").content.decode()
assert "0 delayed, 1 ready, 0 leased, 0 dead" in page, page
assert "https://queues.example/dashboard/queues/mails" in page
assert client.get("/admin/tarry/queue/add/").status_code == 403
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (("settings.py", _SETTINGS), ("urls.py", _URLS), ("manage.py", _MANAGE)):
        (tmp_path / name).write_text(text)
    return tmp_path


def manage(project: Path, dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TARRY", "PG", "DJANGO"))}
    command = [sys.executable, "-W", "ignore", "manage.py", *words]
    return subprocess.run(
        command,
        cwd=project,
        env={**environment, "PROJECT_DSN": dsn},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def without_tables(database: str) -> str:
    with psycopg.connect(database) as conn:
        conn.execute("drop schema tarry cascade")
    return database


def test_a_project_checks_migrates_and_shows_its_queues(project: Path, without_tables: str) -> None:
    story = manage(project, without_tables, "shell", "--no-imports", "-c", _STORY)
    assert story.returncode == 0, story.stderr
    shown = manage(project, without_tables, "tarry", "queue", "show", "mails", "-o", "json")
    assert '"name": "mails"' in shown.stdout, shown.stderr


def test_a_worker_that_is_not_named_is_refused(project: Path, database: str) -> None:
    missing = manage(project, database, "tarry", "worker", "--once")
    assert (missing.returncode, "names no worker" in missing.stderr) == (2, True), missing.stderr


def test_a_setting_that_does_not_exist_is_named(project: Path, database: str) -> None:
    (project / "settings.py").write_text(_SETTINGS + "TARRY = {'QUEUE': ['mails']}\n")
    refused = manage(project, database, "tarry", "queue", "list")
    assert "TARRY has no QUEUE" in refused.stderr
    assert "there are DASHBOARD, DATABASE, QUEUES, WORKER" in refused.stderr
