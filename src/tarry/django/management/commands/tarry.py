"""`manage.py tarry …`: Tarry's command line on Django's database."""
# pyright: basic

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tarry.django import dsn
from tarry.edges.cli.main import main

_WORKER = "tarry.django.process:worker"


class Command(BaseCommand):
    help = (
        "Run a Tarry command on Django's database: worker, scheduler, sweeper, serve, queue list, db status, doctor …"
    )
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, add_help=False, prefix_chars="\x00", **options)
        parser.add_argument("args", nargs="*")
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """The options are Tarry's, not Django's."""
        sys.exit(self.handle(*argv[2:]))

    def handle(self, *args: str, **options: Any) -> Any:
        os.environ["TARRY_DSN"] = dsn()  # also for the processes of a worker
        words = list(args)
        if words[:1] == ["worker"] and not any(":" in word for word in words[1:2]):
            words.insert(1, _WORKER)
        code = main(words)
        return code if options == {} else None
