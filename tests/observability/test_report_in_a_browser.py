"""The report in a real browser, where one of Chromium's family is installed, or `SHOAL_BROWSER` is the path of one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from spankit import LISTS, TALK, TASK, blueprint, fanned, played

from shoal.blueprints import CallerSeed, Nudge, Region, Stage
from shoal.observability import figures_of, html_of
from shoal.testing import Say, ScriptedProvider, call

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
BROWSER = os.environ.get("SHOAL_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
TITLED = {"titling": "Büro & <b>Co</b>"}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.wall_limit(150),
    pytest.mark.skipif(
        BROWSER is None, reason="no browser of Chromium's family is installed; `SHOAL_BROWSER` names one"
    ),
]

PROBE = """
<script>
addEventListener("load", () => {
  const box = (element) => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] }
  const all = (what, root = document) => [...root.querySelectorAll(what)]
  const seen = {
    figures: JSON.parse(document.getElementById("figures").textContent),
    fetched: performance.getEntriesByType("resource").map((each) => each.name),
    title: document.title,
    text: document.body.innerText,
    wide: [document.documentElement.scrollWidth, innerWidth],
    plots: all("svg").map((svg) => ({
      box: box(svg), bars: all("rect", svg).map(box), words: all("text", svg).map(box),
    })),
    hidden: all("h1, h2, p, svg, table").filter((each) => each.getBoundingClientRect().height === 0).length,
  }
  const told = document.createElement("pre")
  told.id = "seen"
  told.textContent = JSON.stringify(seen)
  document.body.append(told)
})
</script>
"""
"""What we ask the page once it is laid out. It stands in a copy of the page, which itself runs nothing."""


class Seen(HTMLParser):
    """Reads what the probe wrote."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self._inside = False
        self._text = ""
        self.feed(dom)
        self.page: dict[str, Any] = json.loads(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = self._inside or ("id", "seen") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._text += data


def opened(page: str, folder: Path, *, width: int = 1200) -> dict[str, Any]:
    """Open *page* in the browser, offline, and return what the probe saw there."""
    assert BROWSER is not None
    (folder / "report.html").write_text(page.replace("</body>", f"{PROBE}</body>"), "utf-8")
    settings = [
        "--headless=new",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900",
        # Its sandbox does not work for root, as which containers run it.
        *(["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 else []),
    ]
    asked = [BROWSER, *settings, "--dump-dom", (folder / "report.html").as_uri()]
    done = subprocess.run(asked, capture_output=True, timeout=120, check=True)
    return Seen(done.stdout.decode()).page


def inside(inner: list[float], outer: list[float]) -> bool:
    """Say whether one box lies within another, but for the half pixel of a rounded edge."""
    left, top, right, bottom = inner
    return left >= outer[0] - 0.5 and top >= outer[1] - 0.5 and right <= outer[2] + 0.5 and bottom <= outer[3] + 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


async def test_a_browser_shows_the_whole_report_with_nothing_fetched_and_nothing_outside_its_frame(folder: Path):
    quiet = Nudge(enabled=False)
    long = Region("a_region_with_a_name_" + "as_long_as_" * 20, kind="pinned", max_tokens=500, seed=CallerSeed("long"))
    made = blueprint(
        Stage("read", available_tools=LISTS, nudge=quiet), Stage("tell", nudge=quiet), regions=(TASK, long, TALK)
    )
    provider = ScriptedProvider(call("list_dir"), Say("read it", delay_s=3), "told", purposes=TITLED)
    journal, run_id = await played(made, provider, task="</script> <img src=x> “task”", seeds={"long": "words " * 300})
    figures = figures_of(journal, run_id)
    seen = opened(html_of(figures), folder)
    assert seen["figures"] == json.loads(json.dumps(figures))
    assert seen["fetched"] == []
    assert seen["hidden"] == 0
    assert {"Stages over time", "Transitions", "Runs", "read", "tell", "</script> <img src=x> “task”"} <= {
        line.strip() for line in seen["text"].replace("\t", "\n").splitlines()
    }
    for plot in seen["plots"]:
        assert plot["bars"]
        assert all(inside(box, plot["box"]) for box in (*plot["bars"], *plot["words"]))


async def test_a_report_fits_a_narrow_window(folder: Path):
    items = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]
    provider = ScriptedProvider(call("fan_out", items=items), "a says", "b says", purposes=TITLED)
    journal, run_id = await played(fanned(), provider)
    seen = opened(html_of(figures_of(journal, run_id)), folder, width=500)
    needed, there = seen["wide"]
    assert needed <= there
