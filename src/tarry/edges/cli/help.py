"""Plain help at 80 columns: what it does, examples, arguments, options, and the options that every command shares."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class Command(TyperCommand):
    """Options under the heading of their panel. Typer does so only with rich, and importing rich is no quick answer."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_argument_name(param) for param in self.params if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if _is_argument(param):
                sections["Arguments"].append((_argument_name(param), getattr(param, "help", None) or ""))
            elif record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def group(name: str, summary: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group of commands; without rich, which would be imported for every `-h`."""
    return typer.Typer(
        name=name,
        help=summary,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
        add_completion=name == "tarry",
        cls=cls,
    )


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"


def _argument_name(param: Any) -> str:
    """As it was declared; typer would put braces around it."""
    return str(param.metavar or param.name.upper())
