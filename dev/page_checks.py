#!/usr/bin/python3
"""Checks the page of --watch in headless Chromium, against a stand-in for the server and against reports.

    dev/page_checks.py live | views | many | report RUN [TEXT]

A line per check that fails, and exit code 1; the last line counts. Exit code 3: no Chromium. `report` looks
at RUN/report.html, which ./train_gpt RUN --report has written, and finds TEXT in it as text.
"""
import json
import os
import sys
import time
import urllib.parse

import fake_watch
from page_tab import Page, check, end, need_chromium
from show_help import show_help

HOSTILE = "<img src=x onerror=window.hit=1>"
TEXT = f"</script><script>window.hit=2</script>{HOSTILE}"
def rows(first, last):
    """Train rows of steps first .. last, as appended by the server."""
    whole = fake_watch.train_rows(last)
    return {key: column[first - 1:] for key, column in whole.items()}


def live():
    """Runs come, grow, are cut, go; the server goes and comes back."""
    server = fake_watch.Server(token="a b&c")
    server.send("run", fake_watch.run_object("a", 200, 400, 1, "training"))
    hostile = fake_watch.run_object(HOSTILE, 100, 100, 2)
    tasks = {"__proto__": hostile["tasks"]["hellaswag"], HOSTILE: hostile["tasks"]["hellaswag"],
             "piqa": {"step": [100, 50], "accuracy": [0.6, 0.55]}}
    server.send("run", {**hostile, "samples": [{"step": 100, "text": TEXT}], "tasks": tasks})
    address = server.address + "?token=a+b%26c#x=constructor&smooth=-7&zoom=9:x&off=nobody"
    with Page() as page:
        page.open(address)
        page.wait_for("two runs with points", lambda c: set(c) == {"a", HOSTILE} and min(c.values())[0] > 10)
        check("the last step of each", page.curves()["a"][1] == 200 and page.curves()[HOSTILE][1] == 100)
        want = {"train/loss", "train/norm", "train/norm_z", "train/lr", "train/tokens_per_s", "train/mfu",
                "train/joules", "val/loss", "val/bits_per_byte", "tasks/hellaswag", "comm/hidden",
                "comm/wait_ms", "memory", "tasks/__proto__", "tasks/piqa", "tasks/" + HOSTILE}
        check("a chart for what is there", want <= set(page.charts()), page.charts())
        page.js("document.querySelector('#texts select').value = " + json.dumps(HOSTILE))
        page.js("document.querySelector('#texts select').dispatchEvent(new Event('change'))")
        page.text_stays_text(HOSTILE, TEXT)
        ranks = page.js("[...document.querySelectorAll('.tile.slowest')].map(e => e.dataset.rank)")
        check("the rank that all wait for", ranks == ["5"], ranks)
        check("health in a table", page.js("document.querySelectorAll('#health tbody tr').length") == 23)

        picture = page.canvas()
        server.send("run", {"run": "a", "state": "training", "age": 0, "train": rows(201, 240)})
        page.wait_for("new rows arrive", lambda c: c["a"][1] == 240)
        page.wait_for_change("new rows move the curve", picture)
        server.send("run", {"run": "new", "reset": True, "state": "training", "train": rows(1, 3)})
        page.wait_for("a new run comes", lambda c: c.get("new", (0, 0)) == (3, 3))
        server.send("run", {**fake_watch.run_object("a", 50, 400, 1, "training")})
        page.wait_for("a reset shows less", lambda c: c["a"][1] == 50)
        server.send("run", {"run": "a", "state": "training", "train": rows(41, 60)})
        page.wait_for("rows that come again replace", lambda c: c["a"] == (60, 60))
        server.send("gone", {"run": "new"})
        page.wait_for("a deleted run goes", lambda c: set(c) == {"a", HOSTILE})
        page.clean(server.address)

        server.runs.pop(HOSTILE)
        server.hang_up()
        told = page.until("document.querySelector('#notice').textContent")
        check("a notice while there is no connection", "connection" in (told or ""), told)
        page.wait_for("after it, the runs that are still there", lambda c: set(c) == {"a"}, 12)
        check("the notice goes", page.until("document.querySelector('#notice').textContent === ''"))
    asked = [a for a in server.asked if not a.endswith("token=a+b%26c") and "favicon" not in a]
    check("each request has the token", not asked, asked)


def views():
    """Axes, zoom, cursor, keyboard, switches, address, phone, dark."""
    server = fake_watch.Server()
    long = fake_watch.run_object("long", 40000, 40000, 1, "done", 100)
    server.send("run", long)
    server.send("run", fake_watch.run_object("short", 20000, 40000, 2, "quiet", 50))
    asked = []

    def fine(first, last, points):
        asked.append((first, last, points))
        every = max(1, (last - first) // points)
        whole = fake_watch.train_rows(last, every)
        keep = [i for i, step in enumerate(whole["step"]) if step >= first]
        return {key: [column[i] for i in keep] for key, column in whole.items()}

    server.rows["long"] = server.rows["short"] = fine
    with Page() as page:
        page.open(server.address)
        page.wait_for("two runs", lambda c: len(c) == 2 and min(c.values())[0] > 10)
        left, top, width, height = page.plot()
        picture = page.canvas()
        for axis in ("tokens", "time", "flops", "step"):
            page.click(f"#axes input[value={axis}]")
            picture = page.wait_for_change(f"the axis {axis}", picture)
            if axis == "flops":
                page.click("#models input[value^='GPT-3, best loss']")
                picture = page.wait_for_change("GPT-3's losses over FLOPs", picture)
        for control in ("#logx", "[data-chart='train/loss'] figcaption input", "#logx"):
            page.click(control)
            picture = page.wait_for_change(control, picture)
        check("the address has the view", "logy=train" in page.hash(), page.hash())
        page.click("[data-chart='train/loss'] figcaption input")
        picture = page.wait_for_change("a linear axis again", picture)
        page.js("document.querySelector('#smooth').value = 80; document.querySelector('#smooth')"
                ".dispatchEvent(new Event('input'))")
        page.wait_for_change("smoothing", picture)
        picture = page.canvas("val/loss")
        page.click("#models input[value='GPT-2 124M']")
        page.wait_for_change("a reference curve", picture, "val/loss")
        source = page.js("document.querySelector('#models label').title")
        check("a reference names its source", "vislog" in source, source)

        points = page.curves()["long"][0]
        page.drag(left + 0.4 * width, top + 60, left + 0.5 * width, top + 64)
        page.until("location.hash.includes('zoom')")
        lo, hi = (float(x) for x in page.hash().split("zoom=")[1].split("&")[0].split("%3A"))
        check("a drag zooms to what it covers", 0.3 < lo / 40000 < 0.45 < hi / 40000 < 0.55, page.hash())
        end = time.monotonic() + 4
        while (len(asked) < 2 or page.curves()["long"][0] <= points) and time.monotonic() < end:
            time.sleep(0.03)
        inside = [a for a in asked if a[0] <= lo + 100 and a[1] >= hi - 100 and 0 < a[2] <= 5000]
        check("the zoom asks for finer rows of each run", len(asked) == len(inside) == 2, asked)
        now = page.curves()["long"][0]
        check("the finer rows are drawn", now > points, f"{points} points, then {now}")
        zoomed = page.hash()
        page.open(server.address + zoomed)
        page.wait_for("the address brings the view back", lambda c: len(c) == 2 and min(c.values())[0] > 1)
        check("with all of it", page.hash() == zoomed, f"{zoomed}, {page.hash()}")
        page.double_click(left + width / 2, top + height / 2)
        check("a double click resets", page.until("!location.hash.includes('zoom')"), page.hash())

        cursor(page)
        keyboard(page)
        page.click("#legend input")
        page.wait_for("a run is switched off", lambda c: set(c) == {"short"})
        page.click("#all")
        page.wait_for("and on", lambda c: len(c) == 2)
        screens(page)
        page.clean(server.address)


def cursor(page):
    left, top, width, height = page.plot()
    page.mouse("Moved", left + width / 2, top + height / 2)
    shown = "[...document.querySelectorAll('.tip')].filter(t => !t.hidden).map(t => t.textContent)"
    page.until(shown + ".length > 2")
    tips = page.js(shown)
    both = [t for t in tips if "long" in t and "short" in t]
    check("the crosshair reads all curves of all charts in view", len(both) >= 3 and "step" in tips[0], tips)
    check("and the dashed", any("long, dashed" in t for t in tips), tips)
    left, top, width, height = page.plot()
    x = 54 + 0.62 * (width - 68)                            # between the edges of the plot
    page.mouse("Moved", left + x, top + height / 2)
    tip = "document.querySelector(\"[data-chart='train/loss'] .tip\").textContent"
    check("the crosshair tells a spike", page.until(tip + ".includes('first moved: h.1.fcw')"), page.js(tip))
    found = page.js("(canvas => [...Array(13).keys()].map(i => [...canvas.getContext('2d').getImageData(("
                    f"{x} - 6 + i) * canvas.width / {width}, {height - 49} * canvas.height / {height}, 1, 1)"
                    ".data]))(document.querySelector(\"[data-chart='train/loss'] canvas\"))")
    red = [p for p in found if p[3] > 200 and p[0] > p[1] + 60 and p[0] > p[2] + 60]
    check("and its mark is drawn", red, found)
    page.mouse("Moved", 5, 5)
    check("and goes with the pointer", page.until(shown + ".length === 0") is True, page.js(shown))


def keyboard(page):
    page.js("document.querySelector(\"[data-chart='train/loss'] .plot\").focus()")
    spoken = "document.querySelector('#spoken').textContent"
    page.key("ArrowRight")
    first = page.until(spoken)
    page.key("ArrowRight", 8)
    second = page.until(f"(t => t !== {json.dumps(first)} && t)({spoken})")
    moved = "long" in first and second and second != first
    check("arrow keys move the crosshair", moved, f"{first!r} {second!r}")
    page.key("+")
    check("+ zooms", page.until("location.hash.includes('zoom')"), page.hash())
    page.key("ArrowDown")
    check("down highlights a run", page.until("document.querySelectorAll('#legend li.lit').length === 1"))
    page.key("Escape")
    check("Escape resets", page.until("!location.hash.includes('zoom')"), page.hash())
    names = page.js("[...document.querySelectorAll('input, select, button, .plot')].filter(e => !e.closest("
                    "'label') && !(e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)")
    check("each control has a name", not names, names)


def screens(page):
    colours = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    light, picture = page.js(colours), page.canvas()
    page.dark()
    check("dark where the screen is", page.js(colours) != light, light)
    picture = page.wait_for_change("the charts, too", picture)
    page.screen(390, 800, phone=True)
    picture = page.wait_for_change("a phone's width", picture)
    wide = page.js("document.documentElement.scrollWidth")
    check("nothing is wider than a phone", wide <= 390, f"{wide} pixels")
    left, top, width, height = page.plot()
    page.tap(left + width / 2, top + height / 2)
    check("a tap leaves the crosshair", page.until("!document.querySelector('.tip').hidden"))
    inside = page.js("(b => b.left >= 0 && b.right <= 390)(document.querySelector('.tip')"
                     ".getBoundingClientRect())")
    check("its table is within the screen", inside)
    sizes = page.js("[...document.querySelectorAll('.plot')].map(e => e.clientWidth)")
    check("charts have a phone's width", all(0 < s < 390 for s in sizes), sizes)
    page.screen(1000, 700)
    page.wait_for_change("a resize", picture)


def many():
    """100 runs of 100,000 steps, sampled: every run drawn, few points, spikes stay while rows come."""
    server, runs, steps = fake_watch.Server(), 100, 100_000
    whole = fake_watch.train_rows(steps, 250)
    server.rows["run_000"] = lambda first, last, points: {"step": []}      # the page needs an answer
    for i in range(runs):
        run = fake_watch.run_object(f"run_{i:03d}", 8, steps)
        server.send("run", {**run, "train": whole, "sampled": True, "health": [], "ranks": None})
    with Page() as page:
        begin = time.monotonic()
        page.open(server.address)
        page.wait_for("all are drawn", lambda c: len(c) == runs and min(c.values())[0] > 1, 30)
        seconds = time.monotonic() - begin
        points = max(n for n, _ in page.curves().values())
        for i in range(60):
            more = fake_watch.train_rows(100)
            more["step"] = [steps + 100 * i + step for step in more["step"]]
            if i == 10:
                more["loss"][54] = -1.2345                         # has to be found by a zoom
            for k in range(runs if i == 0 else 1):
                server.send("run", {"run": f"run_{k:03d}", "state": "training", "train": more})
        page.wait_for("what comes is drawn", lambda c: c["run_000"][1] == steps + 6000 and
                      all(c[f"run_{k:03d}"][1] == steps + 100 for k in range(1, runs)), 15)
        # 6,000 new steps lie in a 17th of the width: up to 4 points of each column of pixels stay
        columns, now = page.plot()[2] / 17, page.curves()["run_000"][0]
        check("extremes of a column are drawn", now > len(whole["step"]) + 1.5 * columns, f"{now} points")
        ticks = page.js("new Promise(done => { let n = 0, end = performance.now() + 500; const f = () => {"
                        " n++; performance.now() < end ? requestAnimationFrame(f) : done(n) }; f() })")
        check("the page answers meanwhile", ticks > 3, f"{ticks} frames in 0.5 s")
        most = page.js("document.querySelector(\"[data-chart='train/loss'] .plot\").clientWidth") * 4
        check("a few points a column of pixels", points <= most, f"{points} of {most}")
        kept = steps + 1055
        page.js(f"location.hash = 'smooth=0&zoom={kept - 90}:{kept + 90}' + "
                "[...document.querySelectorAll('#legend .name')].slice(1).map(e => '&off=' + e.textContent)"
                ".join('')")
        page.wait_for("one run is left", lambda c: set(c) == {"run_000"})
        left, top, width, height = page.plot()
        page.mouse("Moved", left + 54 + (width - 68) / 2, top + 99)
        tip = "document.querySelector('.tip').textContent"
        check("an extreme stays", page.until(tip + ".includes('-1.2345')"), page.js(tip))
        page.clean(server.address)
        print(f"{runs} runs drawn after {seconds:.2f} s, {points} points each, {ticks} frames in 0.5 s")


def report(folder, text=None):
    """report.html of a run, from a file."""
    with open(folder + "/metrics.jsonl", encoding="utf-8", errors="replace") as f:
        steps = [row["step"] for line in f if '"event":"train"' in line and (row := tried(line))]
    home = "file://" + urllib.parse.quote(os.path.realpath(folder), safe="/=")
    with Page() as page:
        page.open(home + "/report.html")
        name = os.path.basename(os.path.realpath(folder))
        page.wait_for("the run is drawn", lambda c: set(c) == {name} and c[name][0] > 1 and
                      c[name][1] == steps[-1])
        kept = json.loads(page.js("document.querySelector('#data').textContent"))[0]["train"]
        check("some 2,000 rows at most", len(kept["step"]) <= 2500, len(kept["step"]))
        check("the extremes stay", len(steps) < 4000 or min(kept["loss"]) == -1.5, min(kept["loss"]))
        page.text_stays_text(*([text] if text else []))
        picture = page.canvas()
        page.click("#logx")
        page.wait_for_change("its controls work", picture)
        check("no connection is tried", len(page.requests()) == 1, page.requests())
        page.clean(home)


def tried(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


def main():
    parts = {"live": live, "views": views, "many": many, "report": report}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    need_chromium()
    parts[sys.argv[1]](*sys.argv[2:])
    end()


if __name__ == "__main__":
    show_help(__doc__)
    main()
