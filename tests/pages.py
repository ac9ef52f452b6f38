"""Opens pages in a real browser, without a network."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OUTPUT = Path(os.environ.get("LOCKSTEP_TEST_OUTPUT") or Path(__file__).parent / "output")
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn)"
MARKS = """
[...document.querySelectorAll('.plot')].map(plot => {
  const marks = [...plot.querySelectorAll('.scatterlayer .trace path, .barlayer .point path')];
  const seen = marks.filter(mark => { const box = mark.getBoundingClientRect(); return box.width + box.height > 0; });
  return [plot.id, seen.length, plot.getAttribute('aria-label').length];
})
"""
CONTRAST = """
[...document.querySelectorAll('.chip, .muted, summary, dt, p, h2, td, th, .legend span')].map(node => {
  const light = text => {
    const parts = text.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
    const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let ground = node;
  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  const pair = [light(getComputedStyle(node).color), light(getComputedStyle(ground).backgroundColor)].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), node.className || node.tagName];
})
"""


def wait_until(page: Page, condition: str, seconds: float = 30.0) -> None:
    """Waits for a condition. The page forbids `eval`, so the browser driver's own waiting does not work."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"not in {seconds} seconds: {condition}"
        time.sleep(0.05)


@contextmanager
def open_page(browser: Browser, path: Path, width: int = 1200, scheme: str = "light") -> Iterator[Page]:
    """Yields the page with all charts drawn. Fails when the browser reports an error or requests anything but the file."""
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page, errors, requests = context.new_page(), list[str](), list[str]()
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    wait_until(page, DRAWN)
    yield page
    assert errors == []
    assert requests == [path.as_uri()]
    context.close()


def save_screenshot(page: Page, name: str) -> None:
    """Saves a picture of the whole page, for a person to look at."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=OUTPUT / f"{name}.png", full_page=True)
