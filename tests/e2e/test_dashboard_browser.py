"""The dashboard in a real Chromium: journeys clicked, news without reload, what axe finds, pictures of every page.

Needs Playwright (tests/clients/browser-requirements.txt) and a Chromium (Debian: chromium); `make dashboard` runs it.
Pictures for people lie in $SPRITZ_SHOTS, where it is set.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import PATIENCE_SECONDS, until
from tests.e2e.test_dashboard import Dashboard

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make dashboard")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make dashboard")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

PAGES = {
    "overview": "/",
    "queue": "/queue",
    "history": "/history",
    "timeline": "/timeline",
    "nodes": "/nodes",
    "node": "/nodes/node1",
    "topology": "/topology",
    "partitions": "/partitions",
    "partition": "/partitions/main",
    "reservations": "/reservations",
    "usage": "/usage",
    "health": "/health",
    "links": "/links",
    "submit": "/submit",
    "runs": "/runs",
    "sweeps": "/sweeps",
    "pipelines": "/pipelines",
}


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    found = Dashboard()
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def cookies(dashboard: Dashboard, browser: Any) -> Any:
    """Of a browser that was logged in by a link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(dashboard.link)
    playwright.expect(page).to_have_title(re.compile("^Overview"))
    found = context.cookies()
    context.close()
    return found


@pytest.fixture
def page(dashboard: Dashboard, browser: Any, cookies: Any) -> Iterator[Any]:
    """A page whose errors fail the test."""
    context = browser.new_context(base_url=str(dashboard.client.base_url), viewport={"width": 1380, "height": 900})
    context.add_cookies(cookies)
    found = context.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda line: problems.append(line.text) if "Content Security Policy" in line.text else None)
    yield found
    context.close()
    assert not problems, problems


def submit(dashboard: Dashboard, *words: str, script: str = "sleep 600") -> int:
    return int(dashboard.run("sbatch", "--parsable", *words, "--wrap", script))


def test_news_arrive_without_reload(dashboard: Dashboard, page: Any) -> None:
    page.goto("/queue")
    page.evaluate("window.stays = true")
    job = submit(dashboard, "-J", "comes-by-itself", "--gpus=1")
    row = page.locator(f"#j-{job}")
    playwright.expect(row).to_contain_text("Running")
    row.locator("input[type=checkbox]").check()
    playwright.expect(page.locator("#bulk")).to_contain_text("1 selected")
    other = submit(dashboard, "-J", "second")
    playwright.expect(page.locator(f"#j-{other}")).to_be_visible()
    assert row.locator("input[type=checkbox]").is_checked(), "news leave the selection as it is"
    page.get_by_role("button", name="Cancel").click()
    playwright.expect(page.get_by_text("Cancel the selected jobs?")).to_be_visible()
    page.locator("#confirm").get_by_role("button", name="Cancel").click()
    playwright.expect(page.locator("#notices")).to_contain_text("Cancelled: 1 job.")
    playwright.expect(row).to_have_count(0)
    assert page.evaluate("window.stays")
    dashboard.run("scancel", str(other))


def test_a_job_is_submitted_read_searched_and_cancelled(dashboard: Dashboard, page: Any) -> None:
    page.goto("/submit")
    page.get_by_label("Name", exact=True).fill("by hand")
    page.get_by_label("Directory").fill(str(dashboard.root))
    script = (
        "#!/bin/bash\nfor i in $(seq 2000); do echo step $i; done\necho '<img src=x onerror=alert(1)>'\nsleep 600\n"
    )
    page.get_by_label("Script").fill(script)
    page.get_by_role("button", name="When would it start?").click()
    playwright.expect(page.get_by_text("It can run.")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/\d+"))
    playwright.expect(page.locator("#log-text")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("#log-text img").count() == 0
    page.get_by_placeholder("Find in the output").fill("step 1999")
    playwright.expect(page.locator("#log-found")).to_contain_text("1 line")
    page.locator("summary", has_text="Change").click()
    page.get_by_label("Time limit, minutes").fill("77")
    page.locator("#change").get_by_role("button", name="Change").click()
    playwright.expect(page.get_by_text("1 h 17 min").first).to_be_visible()
    assert page.locator("#change").get_attribute("open") is not None, "what is open stays open"
    page.get_by_role("button", name="Cancel").click()
    page.locator("#confirm").get_by_role("button", name="Cancel").click()
    playwright.expect(page.locator("h1 .pill")).to_have_text("Cancelled")


def test_hostile_output_is_text_in_its_place(dashboard: Dashboard, page: Any) -> None:
    path = dashboard.root / "hostile.out"
    job = submit(dashboard, "-o", str(path))
    until(path.exists, "the job has its output")
    with path.open("ab") as file:
        file.write(b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x1b[1;1H plain\n")
        file.write("turned \u202ethgir\n".encode())
        file.write(b"x" * 1_000_000 + b"\n")
        file.write(b"\x1b[31m" * 20_000 + b"bomb\x1b[0m\n")
        file.write(b"10%\r50%\r100%\nlast\n")
    page.goto(f"/jobs/{job}")
    log = page.locator("#log-text")
    playwright.expect(log).to_contain_text("last")
    with path.open("ab") as file:
        file.write(b"\x1b[31mred\x1b[0m plain\nturned \xe2\x80\xaethgir\n" + b"x" * 50_000 + b"\n10%\r100%\nafter\n")
    playwright.expect(log).to_contain_text("after")
    assert log.locator(".f1", has_text="red").count()
    text = log.inner_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "more characters" in text
    assert "10%" not in text
    dashboard.run("scancel", str(job))


def test_slurmrestd_goes_away_and_comes_back(dashboard: Dashboard, page: Any) -> None:
    page.goto("/queue")
    playwright.expect(page.locator("#live-state")).to_have_text("Live")
    restd = subprocess.run(
        ["pgrep", "-f", f"spritz.rest.main.*{dashboard.cluster}"], capture_output=True, text=True, check=True
    ).stdout.split()
    for pid in restd:
        os.kill(int(pid), signal.SIGKILL)
    playwright.expect(page.get_by_text("No news from the cluster.")).to_be_visible()
    dashboard.run("spritz", "up", "--quiet", "--rest", "--dir", str(dashboard.cluster))
    playwright.expect(page.locator("#live-state")).to_have_text("Live")
    playwright.expect(page.get_by_text("No news from the cluster.")).to_be_hidden()
    job = submit(dashboard, "-J", "after-the-gap")
    playwright.expect(page.locator(f"#j-{job}")).to_be_visible()
    dashboard.run("scancel", str(job))


def test_filters_are_in_the_address_and_keys_work(dashboard: Dashboard, page: Any) -> None:
    job = submit(dashboard, "-J", "needle", "-H")
    page.goto("/queue")
    page.keyboard.press("/")
    page.keyboard.type("needle")
    playwright.expect(page).to_have_url(re.compile("q=needle"))
    playwright.expect(page.locator("tbody tr")).to_have_count(1)
    page.reload()
    playwright.expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("x")
    playwright.expect(page.locator("#bulk")).to_contain_text("1 selected")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.wait_for_url("**/nodes")
    page.keyboard.press("?")
    playwright.expect(page.locator("#keys")).to_be_visible()
    dashboard.run("scancel", str(job))


def agree(page: Any, verb: str) -> None:
    page.locator("#confirm").get_by_role("button", name=verb).click()


def test_a_job_is_suspended_resumed_requeued_and_shown_with_its_use(dashboard: Dashboard, page: Any) -> None:
    job = submit(dashboard, "-J", "pausable")
    page.goto(f"/jobs/{job}")
    pill = page.locator("h1 .pill")
    playwright.expect(pill).to_have_text("Running")
    playwright.expect(page.locator(".charts .uplot")).to_have_count(3)
    page.get_by_role("button", name="Suspend").click()
    playwright.expect(page.locator("#notices")).to_contain_text("Suspended: 1 job.")
    playwright.expect(pill).to_have_text("Suspended")
    page.get_by_role("button", name="Resume").click()
    playwright.expect(pill).to_have_text("Running")
    page.get_by_role("button", name="Requeue").click()
    playwright.expect(page.get_by_text("It begins again from the start.")).to_be_visible()
    page.locator("#confirm").get_by_role("button", name="Keep").click()
    playwright.expect(pill).to_have_text("Running")
    page.get_by_role("button", name="Requeue").click()
    agree(page, "Requeue")
    playwright.expect(page.get_by_text("Requeued, restart 1")).to_be_visible()
    dashboard.run("scancel", str(job))


def test_several_jobs_are_held_and_released_at_once(dashboard: Dashboard, page: Any) -> None:
    jobs = [submit(dashboard, "-J", "bulk-of-two", "-b", "now+1hour") for _ in range(2)]
    page.goto("/queue?q=bulk-of-two")
    playwright.expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("#all").check()
    playwright.expect(page.locator("#bulk")).to_contain_text("2 selected")
    page.locator("#bulk").get_by_role("button", name="Hold").click()
    playwright.expect(page.locator("#notices")).to_contain_text("Held: 2 jobs.")
    playwright.expect(page.get_by_text(re.compile("held by (its user|an administrator)"))).to_have_count(2)
    page.locator("#all").check()
    page.locator("#bulk").get_by_role("button", name="Release").click()
    playwright.expect(page.get_by_text(re.compile("held by (its user|an administrator)"))).to_have_count(0)
    dashboard.run("scancel", *map(str, jobs))


def test_a_reservation_is_made_changed_and_deleted(dashboard: Dashboard, page: Any) -> None:
    page.goto("/reservations")
    page.locator("summary", has_text="New reservation").click()
    new = page.locator("form[hx-post='/reservations/create']")
    new.get_by_label("Name").first.fill("for-the-demo")
    new.get_by_label("Begins").fill("2031-05-01T10:00")
    new.get_by_label("Nodes, by name").fill("node2")
    new.get_by_role("button", name="Reserve").click()
    playwright.expect(page.locator("#notices")).to_contain_text("Refused")
    assert new.get_by_label("Name").first.input_value() == "for-the-demo", "what is refused is not lost"
    new.get_by_label("Users").fill("root")
    new.get_by_role("button", name="Reserve").click()
    row = page.locator("#r-for-the-demo")
    playwright.expect(row).to_contain_text("node2")
    row.locator("summary", has_text="Change").click()
    row.get_by_label("Minutes").fill("90")
    row.get_by_label("Nodes, by name").fill("node[1-2]")
    row.get_by_role("button", name="Change").click()
    playwright.expect(row).to_contain_text("1 h 30 min")
    playwright.expect(row).to_contain_text("node[1-2]")
    page.locator("summary", has_text="New reservation").click()
    new.get_by_label("Name").first.fill("for-the-demo")
    new.get_by_role("button", name="Reserve").click()
    playwright.expect(page.locator("#notices")).to_contain_text("already")
    row.get_by_role("button", name="Delete").click()
    agree(page, "Delete")
    playwright.expect(row).to_have_count(0)


def test_a_run_is_paused_and_resumed(dashboard: Dashboard, page: Any) -> None:
    (dashboard.root / "slow.sh").write_text("#!/bin/sh\nsleep 600\n")
    dashboard.run(
        "spritz", "run", "--detach", "--slurm=--hold", "--no-snapshot", "--name", "clicked", "--", "sh", "slow.sh"
    )
    page.goto("/runs/clicked-1")
    pill = page.locator("h1 .pill")
    playwright.expect(pill).to_have_text("Pending")
    page.get_by_role("button", name="Pause").click()
    playwright.expect(pill).to_have_text("Paused")
    page.get_by_role("button", name="Resume").click()
    playwright.expect(pill).to_have_text("Running")
    page.get_by_role("button", name="Pause").click()
    playwright.expect(page.locator("#notices")).to_contain_text("was not started as resumable")
    job = page.get_by_role("link", name="Output").get_attribute("href").rpartition("/")[2]
    dashboard.run("scancel", job)


def test_what_is_refused_before_submission_is_said_and_nothing_is_lost(dashboard: Dashboard, page: Any) -> None:
    page.goto("/submit")
    page.get_by_label("GPUs a node").fill("99")
    page.get_by_label("Script").fill("#!/bin/sh\necho mine\n")
    page.get_by_role("button", name="When would it start?").click()
    playwright.expect(page.get_by_text("Requested node configuration is not available")).to_be_visible()
    assert page.get_by_label("GPUs a node").input_value() == "99"
    assert "echo mine" in page.get_by_label("Script").input_value()
    page.get_by_label("GPUs a node").fill("1")
    page.get_by_role("button", name="When would it start?").click()
    playwright.expect(page.get_by_text("It can run.")).to_be_visible()


def test_news_leave_what_is_being_typed(dashboard: Dashboard, page: Any) -> None:
    job = submit(dashboard, "-J", "edited", "-H")
    page.goto(f"/jobs/{job}")
    page.locator("summary", has_text="Change").click()
    page.get_by_label("Comment").fill("half a sen")
    dashboard.run("scontrol", "update", f"jobid={job}", "timelimit=33")
    playwright.expect(page.get_by_text("33 min").first).to_be_visible()
    assert page.get_by_label("Comment").input_value() == "half a sen"
    page.locator("#change").get_by_role("button", name="Change").click()
    playwright.expect(page.locator(".facts")).to_contain_text("half a sen")
    assert not page.get_by_label("Comment").input_value()
    dashboard.run("scancel", str(job))


def test_a_log_of_a_gigabyte_is_opened_at_its_end(dashboard: Dashboard, page: Any) -> None:
    path = dashboard.root / "huge.out"
    job = submit(dashboard, "-o", str(path))
    until(path.exists, "the job has its output")
    with path.open("r+b") as file:
        file.seek(1 << 30)
        file.write(b"\nthe last line\n")
    page.goto(f"/jobs/{job}")
    playwright.expect(page.locator("#log-text")).to_contain_text("the last line")
    playwright.expect(page.locator("#log-about")).to_contain_text("1.0 GiB")
    page.get_by_placeholder("Find in the output").fill("the last")
    playwright.expect(page.locator("#log-found")).to_contain_text("1 or more lines")
    dashboard.run("scancel", str(job))


def test_a_session_that_ends_in_one_tab_ends_in_the_other(dashboard: Dashboard, browser: Any) -> None:
    context = browser.new_context(base_url=str(dashboard.client.base_url))
    first = context.new_page()
    first.goto(dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip())
    playwright.expect(first).to_have_title(re.compile("^Overview"))
    second = context.new_page()
    second.goto("/queue")
    playwright.expect(second.locator("#live-state")).to_have_text("Live")
    first.get_by_role("button", name="Log out").click()
    first.wait_for_url("**/login*")
    job = submit(dashboard, "-H")
    second.wait_for_url("**/login*")
    playwright.expect(second.get_by_text("spritz dashboard")).to_be_visible()
    context.close()
    dashboard.run("scancel", str(job))


def test_a_job_is_shared_looked_at_and_revoked(dashboard: Dashboard, page: Any, browser: Any) -> None:
    """Another person opens the link in a browser of its own, with a session of its own, and keeps that."""
    job = submit(dashboard, "-J", "shown-to-others", script="echo seen by others; sleep 600")
    page.goto(f"/jobs/{job}")
    playwright.expect(page.locator("#log-text")).to_contain_text("seen by others")
    page.get_by_role("button", name="Share").click()
    there = page.locator("#share-link").inner_text()
    _shot(page, "share-made")
    context = browser.new_context(base_url=str(dashboard.client.base_url), viewport={"width": 1380, "height": 900})
    guest = context.new_page()
    guest.goto(dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip())
    playwright.expect(guest).to_have_title(re.compile("^Overview"))
    guest.goto(there)
    playwright.expect(guest.locator("#log-text")).to_contain_text("seen by others")
    playwright.expect(guest.locator("#live-state")).to_have_text("Live")
    assert guest.locator("nav.side, #page button.danger, form[action], form[hx-post]").count() == 0
    _shot(guest, "shared-job")
    dashboard.run("scancel", str(job))
    playwright.expect(guest.locator("h1 .pill")).to_have_text("Cancelled")
    page.goto("/links")
    page.get_by_role("button", name=f"Revoke the link to job {job}").click()
    playwright.expect(page.get_by_text("No link works.")).to_be_visible()
    playwright.expect(guest.get_by_text("This link has expired, or was revoked.")).to_be_visible()
    _shot(guest, "link-revoked")
    guest.goto("/queue")
    playwright.expect(guest.locator("#live-state")).to_have_text("Live")
    context.close()


def _shot(tab: Any, name: str) -> None:
    if "SPRITZ_SHOTS" in os.environ:
        shots = Path(os.environ["SPRITZ_SHOTS"])
        shots.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=str(shots / f"{name}.png"), full_page=True)


def test_two_tabs_act_on_one_job(dashboard: Dashboard, page: Any) -> None:
    job = submit(dashboard, "-H")
    second = page.context.new_page()
    for tab in (page, second):
        tab.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Cancel").click()
    page.locator("#confirm").get_by_role("button", name="Cancel").click()
    for tab in (page, second):
        playwright.expect(tab.locator("h1 .pill")).to_have_text("Cancelled")
    playwright.expect(second.get_by_role("button", name="Cancel")).to_have_count(0)


def test_an_ended_session_leads_to_the_login(dashboard: Dashboard, browser: Any) -> None:
    context = browser.new_context(base_url=str(dashboard.client.base_url))
    tab = context.new_page()
    tab.goto(dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip())
    playwright.expect(tab).to_have_title(re.compile("^Overview"))
    tab.get_by_role("button", name="Log out").click()
    tab.wait_for_url("**/login*")
    tab.goto("/queue")
    playwright.expect(tab.get_by_text("spritz dashboard")).to_be_visible()
    context.close()


@pytest.mark.parametrize("look", ["light", "dark", "phone", "zoomed"])
def test_every_page_passes_axe_and_fits_its_window(dashboard: Dashboard, browser: Any, cookies: Any, look: str) -> None:
    """`zoomed` is 200 % on a window of 1380 pixels. Nothing is wider than its window."""
    sizes = {"phone": (390, 844), "zoomed": (690, 450)}
    width, height = sizes.get(look, (1380, 900))
    jobs = [
        submit(dashboard, "-J", "runs", "--gpus=4", "-t", "60"),
        submit(dashboard, "-J", "waits", "--gpus-per-node=8", "-N2", "-t", "30"),
    ]
    dashboard.run("scontrol", "update", "nodename=node2", "state=drain", "reason=a fan")
    context = browser.new_context(
        base_url=str(dashboard.client.base_url),
        viewport={"width": width, "height": height},
        color_scheme="dark" if look == "dark" else "light",
    )
    context.add_cookies(cookies)
    tab = context.new_page()
    found: list[str] = []
    places = {**PAGES, "job": f"/jobs/{jobs[0]}", "waiting-job": f"/jobs/{jobs[1]}"}
    for name, there in places.items():
        tab.goto(there)
        playwright.expect(tab.locator("#live-state")).to_have_class("live-state ")
        playwright.expect(tab.locator("#explain .loading")).to_have_count(0)
        if name != "submit":
            playwright.expect(tab.locator(".side [aria-current]")).to_be_in_viewport()
        if tab.evaluate("document.documentElement.scrollWidth") > width + 1:
            found.append(f"{name}: wider than the window")
        if "SPRITZ_SHOTS" in os.environ:
            shots = Path(os.environ["SPRITZ_SHOTS"])
            shots.mkdir(parents=True, exist_ok=True)
            tab.screenshot(path=str(shots / f"{name}-{look}.png"))
        for one in axe.Axe().run(tab).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                found.append(f"{name}: {one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}")
    context.close()
    dashboard.run("scontrol", "update", "nodename=node2", "state=resume")
    dashboard.run("scancel", *map(str, jobs))
    assert not found, "\n".join(found)


def test_log_out_everywhere_ends_the_other_browser_too(dashboard: Dashboard, browser: Any) -> None:
    """The last test: the session of the tests before ends too."""
    contexts = [browser.new_context(base_url=str(dashboard.client.base_url)) for _ in range(2)]
    tabs = [context.new_page() for context in contexts]
    for tab in tabs:
        tab.goto(dashboard.run("spritz", "dashboard", "--dir", str(dashboard.cluster)).strip())
        playwright.expect(tab).to_have_title(re.compile("^Overview"))
    tabs[0].goto("/links")
    tabs[0].get_by_role("button", name="Log out everywhere").click()
    for tab in tabs:
        tab.wait_for_url("**/login*")
    _shot(tabs[0], "logged-out")
    for context in contexts:
        context.close()
