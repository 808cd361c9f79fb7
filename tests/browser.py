"""A page opened in a real browser, which reaches nothing but the file."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
WITHOUT_CHROMIUM = "there is no chromium here (Debian's package of that name)"

PHONE, DESKTOP = 380, 1280

_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@dataclass(frozen=True)
class Opened:
    """A page, and what the browser had to say of it.

    Attributes:
        complaints: messages on the console, errors, and requests for other files.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)

    def number(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives."""
        return self.page.evaluate(expression)


@contextmanager
def browser() -> Iterator[Browser]:
    """Have a headless Chromium with an empty profile."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(running: Browser, path: Path, width: int, scheme: Any = "light") -> Iterator[Opened]:
    """Open a file in a window of some width, offline."""
    context = running.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    try:
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(message.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("requestfailed", lambda request: found.complaints.append(request.url))
        found.page.on("dialog", lambda dialog: found.complaints.append(dialog.message))
        found.page.goto(path.as_uri())
        yield found
    finally:
        context.close()
