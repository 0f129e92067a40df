"""The page in a real Chromium, clicked through as its users do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker import Admin, Producer
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.options import PageOptions
from kbroker.page.server import address_of, listen, server_of

pytestmark = pytest.mark.slow

LIMIT_S = 30
HOSTILE = "</td><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TYPE = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
"""All at once: a machine that stalls between two letters has the list filtered by the first."""
NOTE_TEXTS = (
    "window.said = []; const note = () => said.push(arguments[0].textContent);"
    "new MutationObserver(note).observe(arguments[0], {childList: true, characterData: true, subtree: true})"
)
"""A button says for a second only what it has done."""
MEDIA = "Emulation.setEmulatedMedia"
METRICS = "Emulation.setDeviceMetricsOverride"


@pytest.fixture(scope="module")
def page(broker: BrokerProcess) -> Iterator[str]:
    """The address of a page that may write."""
    options = PageOptions(broker.bootstrap, port=0, allow_writes=True)
    listener = listen(options)
    server = server_of(options)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield address_of(options, listener)
    finally:
        server.should_exit = True
        thread.join(LIMIT_S)
        listener.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium without a window."""
    chromium, driver_file = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_file is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_file))
    try:
        yield driver
    finally:
        with contextlib.suppress(Exception):
            driver.quit()


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    """A topic of flights, one of which means harm."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic(topic_name, 3)
        for number in range(120):
            value = json.dumps({"carrier": "AA", "delay": number}).encode()
            producer.send(topic_name, value, key=b"AA", headers=[("origin", b"JFK")])
        producer.send_and_wait(topic_name, HOSTILE.encode(), key=HOSTILE.encode(), headers=[(HOSTILE, b"x")])
    return topic_name


def until(browser: Any, condition: Callable[[Any], Any]) -> Any:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, LIMIT_S, ignored_exceptions=[StaleElementReferenceException]).until(condition)


def find(browser: Any, selector: str) -> Any:
    """Return what matches, once it is there and can be seen."""

    def visible(driver: Any) -> Any:
        return next((each for each in driver.find_elements("css selector", selector) if each.is_displayed()), None)

    return until(browser, visible)


def click(browser: Any, selector: str) -> None:
    """Click what matches, again when the view was refreshed just then."""
    from selenium.common.exceptions import ElementClickInterceptedException

    def clicked(driver: Any) -> bool:
        try:
            find(driver, selector).click()
        except ElementClickInterceptedException:
            return False
        return True

    until(browser, clicked)


def rows(browser: Any) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", "tr.record")
    return found


def complaints(browser: Any) -> list[str]:
    """What the browser's console says: scripts and styles that were refused, errors."""
    return [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]


def test_a_user_clicks_from_the_overview_to_a_message(browser: Any, page: str, topic: str) -> None:
    browser.get(page)
    click(browser, "nav a[href='/topics']")
    browser.execute_script(TYPE, find(browser, "input[type=search]"), topic)
    until(browser, lambda driver: f"q={topic}" in driver.current_url)
    click(browser, f"a.name[href='/topics/{topic}']")
    click(browser, ".tabs a[href$='/messages']")
    until(browser, lambda driver: len(rows(driver)) == 50)
    until(browser, lambda driver: "there may be more" in find(driver, "[data-status]").text)
    click(browser, "tr.record .open")
    assert find(browser, "tr.detail pre").text
    browser.execute_script("document.querySelector('[name=where]').value = 'value.delay == 7'")
    click(browser, "[data-search]")
    until(browser, lambda driver: len(rows(driver)) == 1 and "that is all" in find(driver, "[data-status]").text)
    assert '"delay": 7' in rows(browser)[0].text
    assert complaints(browser) == []


def test_hostile_records_run_nothing(browser: Any, page: str, topic: str) -> None:
    browser.get(f"{page}/topics/{topic}/messages?text=script")
    until(browser, lambda driver: len(rows(driver)) == 1)
    click(browser, "tr.record .open")
    assert HOSTILE in find(browser, "tr.detail pre").text
    assert "owned" not in browser.title
    assert not browser.find_elements("css selector", "main script, main img")
    assert complaints(browser) == []


def test_a_live_tail_shows_what_comes_and_stops(browser: Any, page: str, topic: str, broker: BrokerProcess) -> None:
    browser.get(f"{page}/topics/{topic}/messages?from=live")
    until(browser, lambda driver: "Live" in find(driver, "[data-status]").text)
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait(topic, b"just now")
    until(browser, lambda driver: any("just now" in row.text for row in rows(driver)))
    click(browser, "[data-stop]")
    until(browser, lambda driver: "Stopped" in find(driver, "[data-status]").text)


def test_a_setting_is_changed_in_place_and_a_record_is_produced(browser: Any, page: str, topic: str) -> None:
    browser.get(f"{page}/topics/{topic}/settings")
    field = find(browser, "input[aria-label='retention.ms']")
    field.clear()
    field.send_keys("123456789\n")
    until(browser, lambda driver: "done=changed" in driver.current_url)
    assert find(browser, ".notice").text == "Changed."
    browser.get(f"{page}/topics/{topic}/messages")
    summaries = browser.find_elements("css selector", "details.below > summary")
    summaries[-1].click()
    find(browser, ".produce textarea[name=value]").send_keys("from the browser")
    click(browser, ".produce button.primary")
    until(browser, lambda driver: "done=produced" in driver.current_url and len(rows(driver)) == 1)
    assert "from the browser" in rows(browser)[0].text


def copied(browser: Any) -> str:
    return str(browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def test_the_place_in_spark_and_the_rows_are_copied(browser: Any, page: str, topic: str) -> None:
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.execute_cdp_cmd("Browser.grantPermissions", {"origin": page, "permissions": permissions})
    browser.get(f"{page}/topics/{topic}/messages?from=start&limit=2")
    until(browser, lambda driver: len(rows(driver)) == 2)
    find(browser, "details.below > summary").click()
    browser.execute_script(NOTE_TEXTS, find(browser, "[data-copy='#snippet']"))
    click(browser, "[data-copy='#snippet']")
    until(browser, lambda driver: "Copied" in driver.execute_script("return said"))
    assert copied(browser) == find(browser, "#snippet").text
    assert ".option('startingOffsets', 'earliest')" in copied(browser)
    click(browser, "[data-copy-rows]")
    until(browser, lambda driver: [line.count("\t") for line in copied(driver).splitlines()] == [4, 4])


def test_a_group_is_moved_only_after_one_has_seen_where_to(
    browser: Any, page: str, topic: str, broker: BrokerProcess
) -> None:
    from selenium.webdriver.support.expected_conditions import alert_is_present

    place = TopicPartition(topic, 0)
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        producer.send_and_wait(topic, b"x", partition=0)
        end = admin.list_offsets([place])[place].offset
        admin.alter_group_offsets(topic, {place: 0})
        browser.get(f"{page}/group?id={topic}")
        browser.execute_script("arguments[0].value = 'latest'", find(browser, "[data-reset] [name=to]"))
        click(browser, "[data-reset] button")
        until(browser, lambda driver: "What the reset would do" in find(driver, "main").text)
        assert admin.list_group_offsets(topic)[place].offset == 0
        click(browser, "section.card form button")
        until(browser, alert_is_present()).dismiss()
        click(browser, "section.card form button")
        until(browser, alert_is_present()).accept()
        until(browser, lambda driver: "done=reset" in driver.current_url)
        assert find(browser, ".notice").text == "The group was moved."
        assert admin.list_group_offsets(topic)[place].offset == end > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_a_phone_in_light_and_dark(browser: Any, page: str, topic: str, scheme: str) -> None:
    browser.execute_cdp_cmd(MEDIA, {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_cdp_cmd(METRICS, {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True})
    try:
        views = ("/", "/map", "/topics", f"/topics/{topic}", f"/topics/{topic}/messages", f"/topics/{topic}/settings")
        for path in (*views, "/groups", "/transactions", "/access", "/brokers/1"):
            browser.get(page + path)
            find(browser, "h1")
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, path
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(19, 23, 22)") == (scheme == "dark")
        assert complaints(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd(MEDIA, {"features": []})


def test_keys_lead_to_views_and_to_the_filter(browser: Any, page: str) -> None:
    browser.get(page)

    def is_led(driver: Any) -> bool:
        if not driver.current_url.endswith("/topics"):
            find(driver, "main").send_keys("gt")  # two keys that count only together, within a second
        return bool(driver.current_url.endswith("/topics"))

    until(browser, is_led)
    find(browser, "main").send_keys("/")
    until(browser, lambda driver: driver.switch_to.active_element.get_attribute("type") == "search")


def test_a_view_that_is_no_longer_fresh_says_so_until_it_is_again(browser: Any, page: str) -> None:
    browser.get(page)
    browser.execute_script("window.real = fetch; window.fetch = () => Promise.reject(new Error('gone')); refresh()")
    until(browser, lambda driver: "Not fresh since" in find(driver, "[data-stale]").text)
    twice = "asked = 0; window.fetch = () => { asked += 1; return real(location.href); }; refresh(); refresh();"
    until(browser, lambda driver: driver.execute_script(f"let {twice} return asked") == 1)
    until(browser, lambda driver: not driver.find_elements("css selector", "[data-stale]"))


def test_a_filtered_list_is_kept_fresh_while_its_filter_has_the_focus(browser: Any, page: str) -> None:
    browser.get(f"{page}/groups?q=no-such")
    browser.execute_script("document.querySelector('#main h1').textContent = 'old'; refresh()")
    until(browser, lambda driver: find(driver, "h1").text == "Groups")
    assert browser.switch_to.active_element.get_attribute("name") == "q"
