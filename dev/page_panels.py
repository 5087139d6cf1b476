#!/usr/bin/python3
"""Checks what stands around the curves of --watch in headless Chromium.

    dev/page_panels.py [ADDRESS METRICS]

Against a stand-in for the server: scores, health, memory, texts, the picture of the mesh, marks of each kind,
references of tasks, the Tab key, and the table beside the crosshair with 40 runs. With the ADDRESS of
./train_gpt --watch: a row that is appended to the metrics.jsonl of one of its runs moves the curve. A line
per check that fails, and exit code 1; the last line counts. Exit code 3: no Chromium.
"""
import json
import os
import sys
import time

import fake_watch
from page_tab import Page, check, end, need_chromium
from show_help import show_help

MARKS = [{"step": 100, "kind": "checkpoint", "text": "runs/a/step_100"},
         {"step": 200, "kind": "restart", "text": "resumed at 200"},
         {"step": 300, "kind": "skipped", "text": "step 300 was skipped"}]


def cells(page, panel):
    """Rows of a panel's tables as lists of texts."""
    return page.js(f"[...document.querySelectorAll('#{panel} tbody tr')].map(r => [...r.children].map("
                   "c => c.textContent))")


def slide(page, selector, value):
    page.js(f"(s => {{ s.value = {value}; s.dispatchEvent(new Event('input')) }})(document.querySelector("
            f"{json.dumps(selector)}))")


def scores(page, server):
    rows = cells(page, "tasks")
    own = [r for r in rows if r[1] == "a"]
    want = ["hellaswag", "a", "400", "10,042", "32.1% ± 0.4", "34.1% ± 0.5", "25.0%"]
    check("the run's scores with errors and chance", own == [want], own)
    published = [r for r in rows if r[1] == "GPT-2 124M"]
    check("published scores by their rule", ["28.92%" in r[4] or "31.14%" in r[5] for r in published] ==
          [True, True], published)
    picture = page.canvas("tasks/hellaswag")
    page.click("#models input[value='GPT-2 1558M']")
    page.wait_for_change("a published score in the chart of the task", picture, "tasks/hellaswag")
    more = {"step": [440], "accuracy": [0.4], "accuracy_norm": [0.5], "documents": [10042], "stderr": [0.004],
            "stderr_norm": [0.005], "chance": [0.25]}
    server.send("run", {"run": "a", "state": "training", "tasks": {"hellaswag": more}})
    last = "(document.querySelector(\"#tasks tr[data-run='a']\")?.textContent ?? '')"
    check("new scores replace the old", page.until(last + ".includes('50.0% ± 0.5')"), page.js(last))


def panels(page, server):
    norms = [r for r in cells(page, "health") if r[0] == "wte.weight" and r[1:] == ["0.5"]]
    check("gradient norms stand beside the step's statistics", len(norms) == 1, cells(page, "health")[-3:])
    server.send("run", {"run": "a", "state": "training", "health": [
        {"event": "grad_norms", "step": 430, "norms": {"wpe.weight": 7.5}}]})
    said = "document.querySelector('#health .muted').textContent"
    check("norms of a spike alone", page.until(said + " === 'at step 430'") and
          cells(page, "health") == [["wpe.weight", "7.5"]], cells(page, "health"))
    slide(page, "#health input[type=range]", 0)
    check("the slider of health goes back", page.until(said + " === 'at step 400'"), page.js(said))
    text = "document.querySelector('#texts pre').textContent"
    newest = page.js(text)
    slide(page, "#texts input[type=range]", 0)
    check("the slider of texts goes back", page.until(f"{text} !== {json.dumps(newest)}"), newest)
    page.js("document.querySelector(\"[data-chart='memory']\").scrollIntoView()")
    points = "document.querySelector(\"[data-chart='memory'] [data-run='a']\").dataset.points"
    check("memory and its plan are curves", page.until(points + " === '18'"), page.js(points))
    tiles = page.js("[...document.querySelectorAll('.tile')].map(t => [t.dataset.rank, t.title])")
    check("a tile for each rank", [t[0] for t in tiles] == [str(r) for r in range(8)], tiles)
    check("which says its place and what it does", "pp 1" in tiles[2][1] and "all_reduce dp for" in
          tiles[2][1] and tiles[5][1].endswith("the others wait for this rank"), tiles)
    hosts = page.js("[...document.querySelectorAll('.host h3')].map(h => h.textContent)")
    check("by host", hosts == ["node1", "node2"], hosts)


def stragglers():
    """Ranks that the others wait for are marked, whenever each process wrote what its ranks do."""
    rank, dp = fake_watch.rank, "all_reduce dp"
    cases = {                                       # steps of 40 ms; name -> ranks, those to mark
        "moments apart": ([rank(0, 400, dp, 0, 0.1), rank(1, 366, "", 0, 1.9)], []),
        "the older waits": ([rank(0, 400, "", 0, 0), rank(1, 353, dp, 0, 1.9)], []),
        "at one glance": ([rank(0, 400, dp, 0, 0.4), rank(1, 400, "", 0, 0.4), rank(2, 400, "", 0, 0.4)], []),
        "waited before": ([rank(0, 400, dp, 4, 1.9), rank(1, 445, "", 0, 0.1)], []),
        "computes": ([rank(0, 400, dp, 4, 0.1), rank(1, 400, "", 4.2, 1.9), rank(2, 400, dp, 0, 1)], [1]),
        "a step behind": ([rank(0, 400, dp, 6, 0.1), rank(1, 399, "recv pp", 0.2, 1.9)], [1]),
        "its host froze": ([rank(0, 400, dp, 9, 0.1), rank(1, 400, "", 0, 9.4), rank(2, 400, dp, 9, 1)], [1]),
        "all were killed": ([rank(0, 400, dp, 9, 12), rank(1, 400, "", 9, 12)], []),
    }
    server = fake_watch.Server()
    for name, (ranks, _) in cases.items():
        server.send("run", {**fake_watch.run_object(name, 400, 400, 1, "training"), "ranks": ranks})
    marked = ("Object.fromEntries([...document.querySelectorAll('#ranks .picker')].map(p => [p.firstChild"
              ".textContent, [...p.nextSibling.querySelectorAll('.slowest')].map(t => +t.dataset.rank)]))")
    with Page() as page:
        page.open(server.address)
        page.until(f"Object.keys({marked}).length === {len(cases)}")
        found = page.js(marked)
        for name, (_, slow) in cases.items():
            check(f"stragglers: {name}", found.get(name) == slow, f"{found.get(name)}, expected {slow}")
        page.clean(server.address)


def marks(page):
    picture = page.canvas()
    page.click("#marks")
    bare = page.wait_for_change("marks go", picture)
    page.click("#marks")
    page.wait_for_change("and come", bare)
    page.js("document.querySelector(\"[data-chart='train/loss']\").scrollIntoView()")
    left, top, width, height = page.plot()
    tip = "document.querySelector(\"[data-chart='train/loss'] .tip\").textContent"
    for mark in MARKS:
        page.mouse("Moved", left + 54 + (width - 68) * (mark["step"] - 1) / 399, top + height / 2)
        told = page.until(f"{tip}.includes({json.dumps(mark['text'])})")
        check("the crosshair tells a " + mark["kind"], told, page.js(tip))
    page.mouse("Moved", 5, 5)


def tab_key(page):
    """From the start of the page Tab reaches controls and charts, in their order."""
    page.js("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    reached = []
    for _ in range(40):
        page.key("Tab")
        reached.append(page.js("(e => e.id || e.name || e.className)(document.activeElement)"))
    order = [reached.index(name) if name in reached else -1 for name in ("filter", "axis", "smooth", "plot")]
    in_order = min(order) >= 0 and order == sorted(order)
    check("Tab reaches filter, axes, smoothing and charts", in_order, reached)
    outline = page.js("(e => getComputedStyle(e).outlineStyle)(document.activeElement)")
    check("what has the focus is outlined", outline != "none", outline)


def many_curves():
    """The chart with the crosshair lists each curve; those around the pointer or the highlighted are seen."""
    server, runs = fake_watch.Server(), 40
    for i in range(runs):
        server.send("run", fake_watch.run_object(f"run_{i:02d}", 400, 400, 1 + i, "done"))
    tip = "document.querySelector(\"[data-chart='train/loss'] .tip\")"
    seen = ("(t => { const box = t.querySelector('.list').getBoundingClientRect(); return [..."
            "t.querySelectorAll('tr')].filter(r => { const a = r.getBoundingClientRect(); return "
            "a.top >= box.top - 1 && a.bottom <= box.bottom + 1 }).map(r => r.querySelector('.name')"
            ".textContent) })(" + tip + ")")
    with Page() as page:
        page.open(server.address)
        page.wait_for("40 runs", lambda c: len(c) == runs and min(c.values())[0] > 10)
        left, top, width, height = page.plot()
        shown = []
        for y in (0.1, 0.9):                    # above all curves, and below them
            page.mouse("Moved", left + width / 2, top + y * (height - 40))
            page.until(f"!{tip}.hidden")
            time.sleep(0.2)
            shown.append(page.js(seen))
        names = page.js(f"[...{tip}.querySelectorAll('td.name')].map(e => e.textContent)")
        check("the crosshair reads every curve", len(set(names)) == len(names) == runs, names)
        check("those near the pointer are in view", shown[0] and shown[1] and names[0] in shown[0] and
              names[-1] in shown[1] and not set(shown[0]) & set(shown[1]), shown)
        box = page.js(f"(t => t.getBoundingClientRect().bottom)({tip})")
        check("within the chart", box <= top + height, f"{box} of {top + height}")
        page.js("document.querySelector(\"[data-chart='train/loss'] .plot\").focus()")
        page.key("ArrowRight")
        lit = f"{tip}.querySelector('tr.lit .name')?.textContent"
        visited = set()
        for _ in range(runs):
            before = page.js(lit)
            page.key("ArrowDown")
            now = page.until(f"(name => name !== {json.dumps(before)} && {seen}.includes(name) && name)("
                             f"{lit})")
            visited.add(now)
        check("down shows each run in turn", len(visited) == runs and None not in visited, visited)
        page.key("ArrowRight")
        spoken = "document.querySelector('#spoken').textContent"
        said = page.js(spoken)
        check("a screen reader hears every curve", all(f"run_{i:02d} " in said for i in range(runs)), said)
        page.clean(server.address)


def served(address, metrics):
    """The program's own server, and a run that goes on."""
    name = os.path.basename(os.path.dirname(metrics))
    with open(metrics, encoding="utf-8") as f:
        last = json.loads([line for line in f if '"event":"train"' in line][-1])
    with Page() as page:
        page.open(address)
        page.wait_for("the run is drawn", lambda c: c.get(name, (0, 0))[1] == last["step"])
        picture = page.canvas()
        for step in range(1, 4):
            row = {**last, "step": last["step"] + step, "loss": last["loss"] + step}
            with open(metrics, "a", encoding="utf-8") as f:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
            page.wait_for(f"row {step} arrives", lambda c: c[name][1] == row["step"], 3)   # noqa: B023
        page.wait_for_change("and moves the curve", picture)
        page.clean(address)


def invented():
    server = fake_watch.Server()
    server.send("run", {**fake_watch.run_object("a", 400, 400, 1, "training"), "marks": MARKS})
    with Page() as page:
        page.open(server.address)
        page.wait_for("a run with points", lambda c: "a" in c and c["a"][0] > 10)
        marks(page)
        tab_key(page)
        scores(page, server)
        panels(page, server)
        page.clean(server.address)


def main():
    need_chromium()
    if len(sys.argv) == 3:
        served(*sys.argv[1:])
    else:
        invented()
        stragglers()
        many_curves()
    end()


if __name__ == "__main__":
    show_help(__doc__)
    main()
