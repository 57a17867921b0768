"""Runs what a page shows, in the order in which it shows it, on one database and in one namespace per page.

- `python`: executed; `await` may stand at the top. A line that ends in `# → value` is checked: the value after the arrow is
  compared with the value as it would be printed, where `…` stands for anything. For `print`, the output is the value.
- `python` with a `def test_…`: the page so far is also given to pytest, as a reader would do it.
- `python` that begins with `# some/path.py`: a file of the reader's project. It is written, not executed.
- `sql`: executed.
- `console`: `$ tarry …` and `$ python …` are executed, and each line of output shown must be among the lines printed. On
  reference pages, which show forms rather than sessions, the command and its options must exist. `$ make …` must be a target.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import inspect
import io
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, LiteralString, cast

import psycopg

from tests.docs.pages import ROOT, Block, named

PROGRAM = Path(sys.executable).with_name("tarry")
TIMEOUT_S = 60
_ARROW = re.compile(r"# → (?P<value>.*\S)")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")
_CHECK = "__check__"
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:schemathesis")
"""Plugins of pytest that no page uses: to import the last one takes more than the rest of a run."""


class Printed(str):
    """What a `print` of a page wrote: it is compared as it is, without quotes."""


def printing(*values: object, **options: Any) -> Printed:
    text = io.StringIO()
    builtins.print(*values, **{**options, "file": text})
    return Printed(text.getvalue().rstrip("\n"))


def shown(value: object) -> str:
    """A value as the pages write it: like `repr`, but `Outcome.CREATED` rather than `<Outcome.CREATED: 'created'>`."""
    if isinstance(value, Printed):
        return str(value)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)


def fits(expected: str, output: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), output, flags=re.DOTALL) is not None


def printed(expected: str, line: str) -> bool:
    """Columns may be wider or narrower on the page than on the screen."""
    parts = [" ".join(part.split()) for part in expected.split("…")]
    return fits("…".join(parts), " ".join(line.split()))


def check(value: Any, expected: str, position: str) -> Any:
    assert fits(expected, shown(value)), f"{position}: the page has {expected}, and it is {shown(value)}"
    return value


class _Checked(ast.NodeTransformer):
    """Wraps the value of each statement that an arrow comments on."""

    def __init__(self, arrows: Mapping[int, str], page: str) -> None:
        self.left = dict(arrows)
        self._page = page

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return)) and node.end_lineno in self.left:
            assert node.value is not None
            expected = self.left.pop(node.end_lineno)
            position = f"{self._page}:{node.end_lineno}"
            call = ast.Call(
                ast.Name(_CHECK, ast.Load()), [node.value, ast.Constant(expected), ast.Constant(position)], []
            )
            node.value = ast.copy_location(call, node.value)
        return node


def arrows(source: str) -> dict[int, str]:
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT
    ]
    matches = [(token.start[0], _ARROW.search(token.string)) for token in comments]
    return {line: match["value"] for line, match in matches if match}


class Reader:
    """A reader that runs one page to the end."""

    def __init__(self, path: Path, dsn: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._page = named(path)
        self._is_reference = "reference" in path.parts
        self._dsn = dsn
        self._folder = folder
        self._environment = dict(environment)
        # A module that can be found by its name: dataclasses and pydantic look theirs up.
        self._module = sys.modules["page"] = ModuleType("page")
        self._names: dict[str, Any] = vars(self._module)
        self._names |= {"print": printing, _CHECK: check}
        self._python: list[str] = []
        self._runner = asyncio.Runner()
        # The reader's own files can be imported, as from the folder in which Python was started.
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()

    def close(self) -> None:
        self._runner.close()
        sys.path.remove(str(self._folder))
        own = [
            name for name, module in sys.modules.items() if str(self._folder) in str(getattr(module, "__file__", ""))
        ]
        for name in [*own, "page"]:
            del sys.modules[name]

    def run_block(self, block: Block) -> None:
        if block.file is not None:
            file = self._folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.language == "python" and block.not_run is None:
            self._python.append(block.text)
            self._execute(block)
            if re.search(r"^def test_", block.text, flags=re.MULTILINE):
                self._pytest()
        elif block.language == "sql" and block.not_run is None:
            with psycopg.connect(self._dsn, autocommit=True) as conn:
                conn.execute(cast("LiteralString", block.text))
        elif block.language == "console":
            for command, output in _commands(block.text):
                self._command(command, output, run=block.not_run is None and not self._is_reference)

    def _execute(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + block.text
        checked = _Checked(arrows(source), self._page)
        tree = ast.fix_missing_locations(checked.visit(ast.parse(source)))
        assert not checked.left, f"{self._page}: no value to compare at the lines {sorted(checked.left)}"
        code = compile(tree, self._page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(eval(code, self._names))
        else:
            exec(code, self._names)

    def _pytest(self) -> None:
        file = self._folder / "test_page.py"
        file.write_text("\n\n".join(self._python))
        options = ["-q", *_WITHOUT, "-c", "/dev/null", f"--rootdir={self._folder}"]
        self._run([sys.executable, "-m", "pytest", *options, str(file)])

    def _command(self, command: list[str], output: list[str], *, run: bool) -> None:
        match command:
            case ["make", target, *_]:
                targets = (ROOT / "Makefile").read_text()
                assert re.search(rf"^{re.escape(target)}:", targets, flags=re.MULTILINE), f"no make target {target}"
            case ["tarry" | "python" as program, *words] if run:
                start = str(PROGRAM) if program == "tarry" else sys.executable
                printed_lines = self._run([start, *words]).splitlines()
                missing = [line for line in output if not any(printed(line, candidate) for candidate in printed_lines)]
                assert not missing, f"{self._page}: {shlex.join(command)} did not print {missing}, but {printed_lines}"
            case ["tarry", *words]:
                self._exists(words)
            case _:
                pass

    def _exists(self, words: list[str]) -> None:
        """The longest row of words that names a command has all the options that are used with it."""
        plain = [word for word in words if not word.startswith("-") and not _PLACEHOLDER.fullmatch(word)]
        for length in range(min(2, len(plain)), -1, -1):
            completed = self._completed([str(PROGRAM), *plain[:length], "--help"])
            if completed.returncode == 0:
                used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
                unknown = [
                    option for option in used if not re.search(rf"(?<![\w-]){option}(?![\w-])", completed.stdout)
                ]
                assert not unknown, f"{self._page}: tarry {shlex.join(plain[:length])} has no {unknown}"
                assert length or not plain, f"{self._page}: there is no command tarry {plain[0]}"
                return
        raise AssertionError(f"{self._page}: tarry does not run")

    def _run(self, argv: list[str]) -> str:
        completed = self._completed(argv)
        assert completed.returncode == 0, (
            f"{self._page}: {shlex.join(argv)} ended with {completed.returncode}\n{completed.stdout}"
        )
        return completed.stdout

    def _completed(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            env=self._environment,
            cwd=self._folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )


def _commands(text: str) -> list[tuple[list[str], list[str]]]:
    """Each `$ command` as words, without variables set before it and comments behind it, with the output shown."""
    commands: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:], comments=True)
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words.pop(0)
            commands.append((words, []))
        elif line.strip() and commands:
            commands[-1][1].append(line.rstrip())
    return commands
