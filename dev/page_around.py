#!/usr/bin/python3
"""Checks of what helps to compare runs on the page of --watch, in headless Chromium.

    dev/page_around.py

Filter, heading of the crosshair, table of runs, settings, the map of health, order of the charts, subtitles,
icon, and print. A line per check that fails, and exit code 1; the last line counts. Exit code 3: no Chromium.
"""

import fake_watch
from page_tab import Page, check, end, need_chromium
from show_help import show_help

TABLE = "[...document.querySelectorAll('#table tbody tr')]"


def filters(page):
    page.js("document.querySelector('#filter').value = 'AL'")
    page.js("document.querySelector('#filter').dispatchEvent(new Event('input'))")
    page.wait_for("a filter narrows the charts", lambda c: set(c) == {"alpha", "along"})
    check("and the table", len(page.js(f"{TABLE}.map(r => r.textContent)")) == 2)
    check("the address has the filter", "filter=AL" in page.hash(), page.hash())
    page.js("location.hash = ''")
    page.wait_for("without a filter all are there", lambda c: len(c) == 10)


def crosshair(page):
    """Step 300 of 400: some runs ended at step 200, and their dashes differ."""
    left, top, width, height = page.plot()
    page.mouse("Moved", left + 54 + (width - 68) * 299.5 / 399, top + height / 2)
    tip = "document.querySelector(\"[data-chart='train/loss'] .tip\")"
    head = page.until(f"(t => t.startsWith('step ') && t)({tip}.firstChild?.textContent ?? '')")
    check("the heading is the cursor's step", head in ("step 300", "step 301"), head)
    rows = page.js(f"[...{tip}.querySelectorAll('tr')].map(r => [r.className, r.textContent])")
    ended = [text for kind, text in rows if kind == "muted"]
    check("runs that ended are grey and say where", len(ended) == 1 and ended[0].startswith("along") and
          ended[0].endswith("until step 200"), rows)
    swatches = page.js(f"[...{tip}.querySelectorAll('.swatch')].map(e => e.style.background)")
    check("each line has a swatch of its own", len(set(swatches)) == len(swatches) == 10, swatches)
    page.mouse("Moved", 5, 5)


def table(page):
    names = f"{TABLE}.map(r => r.children[1].textContent)"
    check("runs by name", page.js(names)[:2] == ["along", "alpha"], page.js(names))
    head = "[...document.querySelectorAll('#table th button')].find(b => b.textContent === 'Least val.')"
    best = "[...document.querySelectorAll('#table .best')].map(c => [c.cellIndex, c.parentNode.rowIndex])"
    page.js(head + ".click()")
    page.until(names + "[0] === 'alpha'")
    check("a column sorts", page.js(names)[-1] == "along", page.js(names))
    check("its best value is marked", [6, 1] in page.js(best), page.js(best))
    page.js(head + ".click()")
    check("and again downwards", page.until(names + "[0] === 'along'"), page.js(names))
    page.js("document.querySelector(\"#table [aria-label='Pin run 4 at the top']\").click()")
    check("a pinned run is the first", page.until(names + "[0] === 'run 4'"), page.js(names))
    check("the address has order and pin", page.hash() == "#sort=Least+val.&down=1&pin=run+4", page.hash())
    page.js("location.hash = ''")


def settings(page):
    rows = ("[...document.querySelectorAll('#facts tr')].map(r => [...r.children].map("
            "c => c.textContent))")
    page.js("document.querySelector('#none').click()")
    page.until("!document.querySelector('#legend input:checked')")
    for box in (0, 1):
        page.js(f"document.querySelectorAll('#legend input')[{box}].click()")
    page.until(f"{rows}[0]?.length === 3")
    found = {row[0]: row[1:] for row in page.js(rows)}
    check("runs side by side", found.get("") == ["along", "alpha"], found)
    check("settings that differ, and no others", found.get("about") == ["seed 2", "seed 1"] and
          found.get("optimizer.lr") == ["–", "0.5"] and "model.layers" not in found, found)
    verdict = found.get("Verdict", [""])[0]
    check("a verdict", verdict.startswith("quiet for") and
          "200 of 400 steps, least validation loss" in verdict and
          verdict.endswith("at step 200, 1 restart, 1 spike, 1 skipped step"), verdict)
    took = found["Time in steps"], found["Energy"], found["Cost"]
    check("time, energy, cost", took[0] == ["8.2 s", "16 s"] and "kWh" in took[1][0] and
          took[2] == ["–", "$9.11 by cluster.dollars_per_hour"], took)
    rest = page.js("document.querySelector('#settings details').textContent")
    check("equal ones are folded", "model.layers4" in rest and "seed" not in rest, rest)
    page.js("document.querySelector('#all').click()")


def health(page):
    squares = "[...document.querySelectorAll('#health .map i')]"
    labels = page.js("[...document.querySelectorAll('#health .map span')].map(e => e.textContent)")
    want = ["wte.weight", "layer 0", "layer 1", "layer 2", "layer 3"]
    check("a row of each layer", labels == want, labels)
    titles = page.js(squares + ".map(e => e.title)")
    check("the largest of a layer", len(titles) == 15 and titles[1] == "wte.weight at step 300: 1.3e-5" and
          titles[4] == "h.0.attn.c_proj.weight at step 300: 0.0213", titles)
    select = "[...document.querySelectorAll('#health select')]"
    for number, value in ((1, "tensors: grad nonfinite"), (2, "attn.c_proj.weight")):
        page.js(f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')) }})({select}[{number}])")
    bad = squares + ".filter(e => e.style.background.includes('bad')).map(e => e.title)"
    check("what is not finite is red", page.js(bad) == [f"h.0.attn.c_proj.weight at step {s}: 0.2%"
                                                        for s in (200, 300, 400)], page.js(bad))
    page.js(squares + "[3].click()")
    said = page.js("document.querySelector('#health .muted').textContent")
    check("a click chooses the step", said == "at step 200", said)


def charts(page, server):
    check("a chart of one point comes last", page.charts()[-1] == "tasks/once", page.charts())
    colour = ("(c => [...c.getContext('2d').getImageData(52, 8, 8, c.height - 50).data].some((v, i, d) => "
              "i % 4 === 0 && d[i + 3] > 150 && v < 60 && d[i + 2] > 120))"
              "(document.querySelector(\"[data-chart='val/loss'] canvas\"))")
    page.js("document.querySelector(\"[data-chart='val/loss']\").scrollIntoView()")
    check("validation begins in view", page.until(colour))
    cut = page.js("[...document.querySelectorAll('.unit')].filter(e => e.scrollWidth > e.clientWidth || "
                  "e.scrollHeight > e.clientHeight + 1).map(e => e.textContent)")
    check("no subtitle is cut", not cut, cut)
    icon = page.js("document.querySelector('link[rel=icon]')?.getAttribute('href')")
    check("an icon", (icon or "").startswith("data:image/svg"), icon)
    check("which is not asked for", not [a for a in server.asked if "favicon" in a], server.asked)


def paper(page):
    page.screen(1280, 500)
    page.dark()
    page.js("window.scrollTo(0, 0); window.dispatchEvent(new Event('beforeprint'))")
    plots = page.js("[...document.querySelectorAll('.plot')].map(p => p.style.background.length)")
    check("every chart is drawn before printing", len(plots) > 12 and min(plots) > 4000, plots)
    wide = page.js("[...document.querySelectorAll('main, .panel > *, figure, table')].map(e => "
                   "e.getBoundingClientRect().right).reduce((a, b) => Math.max(a, b))")
    check("nothing is wider than the paper", wide <= 720, wide)
    check("folded settings are open", page.js("document.querySelector('#settings details').open"))
    pages = page.ask("Page.printToPDF")["data"]
    check("a PDF", len(pages) > 50000, len(pages))
    page.js("window.dispatchEvent(new Event('afterprint'))")
    now = page.js("[document.documentElement.className, document.querySelector('.plot').style.background]")
    check("the screen comes back", now == ["", ""], now)


def main():
    server = fake_watch.Server()
    for i, name in enumerate(["alpha", "along", *(f"run {n}" for n in range(2, 10))]):
        steps = 200 if name == "along" else 400
        run = fake_watch.run_object(name, steps, 400, 1 + i, "quiet")
        server.send("run", {**run, "ranks": None, "health": []})
    first = fake_watch.run_object("alpha", 400, 400, 1, "quiet")
    rows = [fake_watch.health_row(step) for step in (200, 300, 400)]
    more = {"optimizer": {"lr": 0.5}, "cluster": {"dollars_per_hour": 1000}}
    server.send("run", {**first, "config": {**first["config"], **more}, "health": rows,
                        "tasks": {**first["tasks"], "once": {"step": [400], "accuracy": [0.5]}}})
    with Page(1280, 1400) as page:
        page.open(server.address)
        page.wait_for("all runs", lambda c: len(c) == 10 and min(c.values())[0] > 10)
        for part in (filters, crosshair, table, settings, health):
            part(page)
        charts(page, server)
        paper(page)
        page.clean(server.address)
    end()


if __name__ == "__main__":
    show_help(__doc__)
    need_chromium()
    main()
