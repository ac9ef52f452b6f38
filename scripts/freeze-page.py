"""Makes a page of charts static, for the documentation: what a browser has drawn stays, its scripts go.

    python scripts/freeze-page.py studies/demo/study.html docs/understand/studies/demo.html

Needs playwright (in the `dev` packages) and Chromium. The page has light colours and is 1,000 pixels wide.
"""

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SCRIPTS = "for (const one of document.querySelectorAll('script, .modebar-container, .hoverlayer')) one.remove()"

LAYERS = ".js-plotly-plot .svg-container{position:relative}.js-plotly-plot .main-svg{position:absolute;top:0;left:0}"
"""A chart is drawn in layers; the library says so to the browser, not in the page."""


def freeze(page: Path) -> str:
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function("[...document.querySelectorAll('.js-plotly-plot')].every(one => one._fullLayout)")
        tab.evaluate("document.fonts.ready")
        tab.evaluate(SCRIPTS)
        text = tab.content()
        browser.close()
    text = re.sub(r"\(prefers-color-scheme:\s*dark\)", "not all", text)
    return text.replace("</head>", f"<style>{LAYERS}</style></head>")


if __name__ == "__main__":
    drawn = Path(sys.argv[2])
    drawn.parent.mkdir(parents=True, exist_ok=True)
    drawn.write_text(freeze(Path(sys.argv[1])), encoding="utf-8")
    print(f"{drawn}: {drawn.stat().st_size / 1e3:,.0f} kB")
