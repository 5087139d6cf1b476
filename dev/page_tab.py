"""A tab for checks of the page: reads its charts, and counts checks."""
import json
import sys
import time

from chromium import Chromium, installed

checked, failures = [], []              # names of checks


def check(name, ok, detail=""):
    checked.append(name)
    if not ok:
        failures.append(name)
        print(f"FAIL  {name}: {detail}", flush=True)


def need_chromium():
    if not installed():
        print("no Chromium: apt-get install chromium")
        sys.exit(3)


def end():
    """The last line counts; exit code 1 where a check failed."""
    print(f"{len(checked)} checks, {len(failures)} failed")
    sys.exit(1 if failures else 0)


class Page(Chromium):
    """The tab with the page in it."""

    def curves(self, chart="train/loss"):
        """Run -> (points drawn, last step) of a chart."""
        found = self.js("[...document.querySelectorAll('[data-chart] [data-run]')].map(e => [e.closest("
                        "'[data-chart]').dataset.chart, e.dataset.run, +e.dataset.points, +e.dataset.step])")
        return {run: (points, step) for c, run, points, step in found if c == chart}

    def charts(self):
        return self.js("[...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)")

    def wait_for(self, name, test, seconds=8):
        """Checks whether test(curves of train/loss) becomes true."""
        end = time.monotonic() + seconds
        while not (ok := test(self.curves())) and time.monotonic() < end:
            time.sleep(0.03)
        check(name, ok, self.curves())

    def canvas(self, chart="train/loss"):
        """The picture of a chart as an address: equal pictures have equal addresses."""
        selector = json.dumps(f"[data-chart={json.dumps(chart)}] canvas")
        return self.js(f"document.querySelector({selector}).toDataURL()")

    def wait_for_change(self, name, picture, chart="train/loss", seconds=4):
        end = time.monotonic() + seconds
        while (now := self.canvas(chart)) == picture and time.monotonic() < end:
            time.sleep(0.03)
        check(name, now != picture, "the picture stays")
        return now

    def plot(self, chart="train/loss"):
        """(left, top, width, height) of a chart's plot in the window."""
        selector = json.dumps(f"[data-chart={json.dumps(chart)}] .plot")
        return self.js(f"(b => [b.x, b.y, b.width, b.height])(document.querySelector({selector})"
                       ".getBoundingClientRect())")

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def hash(self):
        return self.js("location.hash")

    def clean(self, *homes):
        """No errors in the console, and no request to anybody else."""
        far = [u for u in self.requests() if not u.startswith((*homes, "data:", "about:"))]
        check("no errors in the console", not self.errors(), self.errors()[:3])
        check("no requests outside", not far, far[:3])

    def text_stays_text(self, *texts):
        for text in texts:
            shown = self.js("[...document.querySelectorAll('body *:not(script)')].some(e => "
                            f"!e.children.length && e.textContent.includes({json.dumps(text)}))")
            check("shown as text: " + text, shown, "not on the page")
        check("no script of a run ran", self.js("typeof window.hit") == "undefined", self.js("window.hit"))
        check("no element of a run's text", self.js("document.querySelectorAll('img').length") == 0)
