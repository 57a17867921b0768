"""The benchmark of timers still runs, for every contender. How fast is none of a test's business."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks.timers.__main__ import table
from benchmarks.timers.chart import drawn
from benchmarks.timers.contenders import CONTENDERS
from benchmarks.timers.measuring import Figures, Plan, measured

SMOKE = Plan(sizes=(20, 40), window_s=0.02, fires=10, popped=10, cancelled=5, idle_s=0.001, weighed=20)


@pytest.fixture(scope="module")
def figures() -> list[Figures]:
    return [measured(name, size, SMOKE) for name in CONTENDERS for size in SMOKE.sizes]


def test_every_contender_is_measured_and_none_of_them_is_early(figures: list[Figures]) -> None:
    assert {f.contender for f in figures} == set(CONTENDERS)
    ours = [f for f in figures if f.contender in list(CONTENDERS)[:4]]
    assert all(0 < f.late_p50_us <= f.late_p99_us <= f.late_max_us for f in ours)
    assert all(f.start_us > 0 and f.bytes > 0 for f in figures)


def test_the_table_and_the_plot_name_every_contender(figures: list[Figures]) -> None:
    screen = Console(file=io.StringIO(), width=160)
    screen.print(table(20, [f for f in figures if f.timers == 20]))
    assert isinstance(screen.file, io.StringIO)
    plot = drawn(figures, "here & now")
    texts = [element.text for element in ElementTree.fromstring(plot).iter() if element.tag.endswith("text")]
    for name in CONTENDERS:
        assert name in screen.file.getvalue()
        assert name in texts
    assert "here & now" in texts
    assert "prefers-color-scheme: dark" in plot
