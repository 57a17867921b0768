"""Declaration of options, plain help at 80 columns, and the typer groups that commands are registered in."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
GROUPS: dict[str, typer.Typer] = {}
"""Groups of loaded modules, by name. Commands without a group, such as `tarry offer`, are in the group ""."""


class Command(TyperCommand):
    """A command whose options are shown under the heading of their panel.

    Typer does this only with rich, whose import is too slow for a help text.
    """

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


def group(name: str, summary: str = "", cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group of commands, without rich."""
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


def option(declaration: str, help: str, *, panel: str | None = None, **more: Any) -> Any:
    """An option declared by its names and metavar in one text, as help shows them: `option("--limit -l N", "…")`."""
    names = declaration.split()
    metavar = None if names[-1].startswith("-") else names.pop()
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"


def _argument_name(param: Any) -> str:
    """The metavar as declared; typer would add braces."""
    return str(param.metavar or param.name.upper())
