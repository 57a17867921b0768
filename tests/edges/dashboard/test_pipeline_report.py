"""The report of the pipeline in a browser: a file, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, expect

from tarry.edges.spark.report.html import page
from tests.edges.spark.sample_report import NASTY, full


def test_the_file_draws_its_charts_and_fetches_nothing(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(replace(full(NASTY), notes=(NASTY,))), encoding="utf-8")
    errors: list[str] = []
    fetched: list[str] = []
    shown = browser.new_page()
    shown.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.on("dialog", lambda dialog: errors.append(dialog.message))
    shown.on("request", lambda request: fetched.append(request.url))
    shown.goto(file.as_uri())
    expect(shown.locator("tarry-chart canvas")).to_have_count(5)
    assert errors == []
    assert [url for url in fetched if not url.startswith("data:")] == [file.as_uri()]
    shown.close()
