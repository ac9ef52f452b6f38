"""The page of `lockstep serve` in a real browser, with a real server: wide and narrow, light and dark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page
from serve import RunningServer, run_server

from pages import CHROMIUM, CONTRAST, save_screenshot, wait_until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")

TEXT = "Ba de ga ki. Lo mu be do gi!\n\n  Ka lu bo."
HAS_TRANSLATION = (
    "document.querySelectorAll('#target .sentence').length > 0 && !document.body.classList.contains('working')"
)
IS_IDLE = "!document.body.classList.contains('working')"


@pytest.fixture(scope="module")
def server(export_folder: Path, back_folder: Path) -> Iterator[RunningServer]:
    with run_server(export_folder, back_folder) as running:
        yield running


@contextmanager
def open_page(
    browser: Browser,
    address: str,
    width: int = 1200,
    scheme: str = "light",
    ignored: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[Page]:
    """Yields the page when it can be used. Fails when the browser reports an error, or asks another server."""
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", **options
    )
    page, errors, requests = context.new_page(), list[str](), list[str]()
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    wait_until(page, "document.getElementById('counter')?.textContent !== ''")
    yield page
    assert [error for error in errors if not any(part in error for part in ignored)] == []
    assert [url for url in requests if not url.startswith(address)] == []
    context.close()


def enter(page: Page, text: str = TEXT) -> None:
    """Enters a text and waits for its translation."""
    page.fill("#source", text)
    page.press("#source", "Control+Enter")
    wait_until(page, HAS_TRANSLATION)


def ask(address: str, text: str, source: str = "en", target: str = "de") -> str:
    fields = {"q": text, "source": source, "target": target}
    return str(httpx.post(f"{address}/translate", json=fields, timeout=60).json()["translatedText"])


def shows(page: Page, text: str) -> None:
    """Waits until the translation is this text."""
    wait_until(page, f"document.getElementById('target').textContent === {text!r}")


def test_text_is_translated_while_it_is_typed(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        page.locator("#source").press_sequentially("ba de ga", delay=20)
        shows(page, ask(server.address, "ba de ga"))
        page.locator("#source").press_sequentially(" ki lo mu", delay=20)
        shows(page, ask(server.address, "ba de ga ki lo mu"))
        wait_until(page, "/^[\\d,]+ ms · [\\d.,]+ words\\/s$/.test(document.getElementById('speed').textContent)")
        assert page.locator("#counter").text_content() == "17 / 20,000 characters"


def test_line_breaks_and_markup_are_shown_as_text(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        text = "Ba de.\n\n  <img src=x onerror=alert(1)> ga <b>ki</b>"
        enter(page, text)
        assert page.locator("#target img, #target b, #mirror img, #mirror b").count() == 0
        assert page.locator("#target").text_content() == ask(server.address, text)
        assert page.locator("#mirror").text_content() == f"{text}\n"


def test_alternatives_open_with_a_click_and_can_be_chosen(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        enter(page)
        second = page.locator("#target .sentence").nth(1)
        best = second.inner_text()
        second.click()
        page.locator("#choices button").first.wait_for()
        assert page.evaluate("document.activeElement.closest('#choices') !== null")
        page.keyboard.press("Escape")
        assert page.locator("#choices").is_hidden()
        assert page.evaluate("document.activeElement.dataset.place") == "1"
        page.keyboard.press("Enter")
        choice = page.locator("#choices button").first
        choice.wait_for()
        wanted = page.evaluate("document.querySelector('#choices button').firstChild.textContent")
        choice.click()
        assert second.text_content() == wanted
        assert page.locator("#choices").is_hidden()
        second.click()
        page.locator("#choices button").first.wait_for()
        assert best in page.locator("#choices button").first.inner_text()
        page.locator("h1").click()
        assert page.locator("#choices").is_hidden()


def test_pointing_at_a_word_highlights_its_partners_on_the_other_side(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        enter(page)
        assert point_at_words(page, "#target", "#mirror") > 0
        assert page.locator("#target .sentence.near, #mirror .sentence.near").count() == 2
        assert point_at_words(page, "#mirror", "#target") > 0
        weights = (
            "[...document.querySelectorAll('.linked')].map(word => Number(word.style.getPropertyValue('--weight')))"
        )
        assert all(0 < weight <= 1 for weight in page.evaluate(weights))
        page.mouse.move(1, 1)
        wait_until(page, "document.querySelectorAll('.linked, .near, .chosen').length === 0")


def point_at_words(page: Page, side: str, other: str) -> int:
    """Points at words of one side until one has partners. Returns how many the other side shows."""
    for word in page.locator(f"{side} .word").all():
        box = word.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if count := page.locator(f"{other} .word.linked").count():
            assert page.locator(f"{side} .word.chosen").count() == 1
            return count
    return 0


@pytest.mark.slow
def test_a_tap_highlights_words_on_a_phone(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address, 375, has_touch=True, is_mobile=True) as page:
        enter(page)
        page.locator("#target .word").nth(1).tap()
        wait_until(page, "document.querySelectorAll('#mirror .near').length === 1")
        page.locator("#choices").wait_for()
        page.locator("#source").tap(position={"x": 30, "y": 25})
        wait_until(page, "document.querySelectorAll('#target .near').length === 1")
        assert page.locator("#choices").is_hidden()


def test_the_direction_is_switched_with_the_translation(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        enter(page, "ba de ga")
        translation = page.locator("#target").text_content() or ""
        page.click("#switch")
        assert page.input_value("#source") == translation
        assert [page.input_value(f"#{side}-language") for side in ("source", "target")] == ["de", "en"]
        shows(page, ask(server.address, translation, "de", "en"))
        page.select_option("#source-language", "en")
        shows(page, ask(server.address, translation))


@pytest.mark.slow
def test_one_direction_cannot_be_switched(browser: Browser, export_folder: Path) -> None:
    with run_server(export_folder) as running, open_page(browser, running.address) as page:
        assert page.locator("#switch").is_disabled()
        assert page.locator("#source-language").is_disabled()


@pytest.mark.slow
def test_an_empty_text_has_no_translation(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        assert page.locator("#copy").is_disabled()
        enter(page)
        page.click("#clear")
        shows(page, "")
        assert page.locator("#copy").is_disabled()
        assert page.evaluate("document.activeElement.id") == "source"
        page.fill("#source", "  \n ")
        wait_until(page, IS_IDLE)
        assert page.locator("#target .sentence").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1200])
def test_a_long_text_is_translated(browser: Browser, server: RunningServer, width: int) -> None:
    text = ("Ba de ga ki lo mu. " * 530)[:10_000]
    with open_page(browser, server.address, width) as page:
        enter(page, text)
        wait_until(page, "document.querySelectorAll('#target .sentence').length === 527")
        assert page.locator("#counter").text_content() == "10,000 / 20,000 characters"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        heights = page.evaluate(
            "['mirror', 'source'].map(id => document.getElementById(id).getBoundingClientRect().height)"
        )
        assert heights[0] == heights[1]
        assert page.evaluate("document.getElementById('source').scrollHeight") <= heights[1] + 1


@pytest.mark.slow
def test_a_text_over_the_limit_is_not_sent(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        page.fill("#source", "b" * 20_001)
        wait_until(page, "document.getElementById('counter').classList.contains('over')")
        wait_until(page, "!document.getElementById('problem').hidden")
        assert "at most 20,000 characters" in (page.locator("#problem").text_content() or "")


def test_the_page_reconnects_when_the_server_comes_back(browser: Browser, export_folder: Path) -> None:
    with run_server(export_folder) as running:
        port = running.address.rpartition(":")[2]
        with open_page(browser, running.address, ignored=("Failed to load resource",)) as page:
            enter(page, "ba de")
            running.process.terminate()
            running.process.wait(timeout=60)
            page.fill("#source", "ba de ga")
            wait_until(page, "document.getElementById('problem').textContent.includes('Reconnecting')")
            with run_server(export_folder, "--port", port):
                shows(page, ask(running.address, "ba de ga"))
                assert page.locator("#problem").is_hidden()


@pytest.mark.slow
def test_the_page_asks_for_a_key_and_remembers_it(browser: Browser, export_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("opensesame\n")
    with run_server(export_folder, "--api-key-file", tmp_path / "keys") as running:
        with open_page(browser, running.address, ignored=("403",)) as page:
            page.locator("#key-form").wait_for()
            page.fill("#source", "ba de")
            page.fill("#key", "wrong")
            page.click("#key-form button")
            wait_until(page, "document.querySelector('#key-form label').textContent === 'The API key is not valid.'")
            page.fill("#key", "opensesame")
            page.press("#key", "Enter")
            wait_until(page, HAS_TRANSLATION)
            assert page.locator("#key-form").is_hidden()
            page.reload()
            enter(page, "ba de ga")
            assert page.evaluate("localStorage.length") == 0


@pytest.mark.slow
def test_the_translation_is_copied(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address, permissions=["clipboard-read", "clipboard-write"]) as page:
        enter(page)
        page.click("#copy")
        wait_until(page, "document.getElementById('copy').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == page.locator("#target").text_content()


@pytest.mark.slow
def test_everything_can_be_reached_with_the_keyboard(browser: Browser, server: RunningServer) -> None:
    with open_page(browser, server.address) as page:
        enter(page, "Ba de. Ga ki.")
        page.locator("#source-language").focus()
        order = []
        for _ in range(8):
            order.append(page.evaluate("document.activeElement.id || document.activeElement.className.split(' ')[0]"))
            page.keyboard.press("Tab")
        assert order == ["source-language", "switch", "source", "clear", "sentence", "sentence", "copy", ""]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_the_page_fits_and_can_be_read(browser: Browser, server: RunningServer, width: int, scheme: str) -> None:
    with open_page(browser, server.address, width, scheme) as page:
        save_screenshot(page, f"translate-empty-{width}-{scheme}")
        enter(page)
        point_at_words(page, "#target", "#mirror")
        save_screenshot(page, f"translate-{width}-{scheme}")
        page.locator("#target .sentence").first.click()
        page.locator("#choices button").first.wait_for()
        save_screenshot(page, f"translate-choices-{width}-{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [name for ratio, name in page.evaluate(CONTRAST) if ratio < 4.5] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1200])
def test_the_interface_is_described_without_other_servers(browser: Browser, server: RunningServer, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(server.address) else problems.append(one.url))
    page.goto(f"{server.address}/docs")
    wait_until(page, "document.querySelectorAll('.operation').length === 7")
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
