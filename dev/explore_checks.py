#!/usr/bin/python3
"""Checks the page of --explore in headless Chromium, against the program itself.

    dev/explore_checks.py [ADDRESS] [--picture=FILE.png]

ADDRESS: of a page that is served; without one, ./train_gpt --explore is started. A line per check that
fails, and exit code 1; the last line counts. Exit code 3: no Chromium. --picture: writes the README's
picture instead.
"""
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from page_tab import Page, check, end, need_chromium
from show_help import show_help

STATE = {"model.layers": 36, "model.heads": 20, "model.channels": 1280, "model.vocab": 50257,
         "parallel.ranks": 64, "parallel.tp": 4, "parallel.pp": 4, "parallel.zero": 1, "cluster.gpu": "h100",
         "train.micro_batch": 1, "train.batch_tokens": 524288}
# a 70B model whose pipeline and ZeRO stages show
PICTURE = {"preset": "llama3_70B", "cluster.gpu": "h100", "parallel.ranks": 256, "parallel.tp": 4,
           "parallel.pp": 4, "parallel.zero": 1, "memory.recompute": "block", "train.micro_batch": 1,
           "train.batch_tokens": 4194304}
HOSTILE = "<img src=x onerror=window.hit=1>"


class Explored(Page):
    """The tab with the page in it."""

    def go(self, address, state):
        self.open(address + "?" + urllib.parse.urlencode(state))
        self.settled()

    def settled(self):
        """Waits until the page shows the server's answers: bars, step and curve of its address, or a line."""
        shown = "['.memory', '#step [data-stage]', '#speed circle'].every(s => document.querySelector(s))"
        self.until(f"{shown} || document.querySelector('#wrong')?.hidden === false")
        time.sleep(0.3)

    def slide(self, key, steps):
        """Moves a slider by its keyboard."""
        self.js(f"document.getElementById({json.dumps(key.replace('.', '_'))}).focus()")
        for _ in range(abs(steps)):
            self.key("ArrowRight" if steps > 0 else "ArrowLeft")

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.textContent")

    def state(self):
        return dict(urllib.parse.parse_qsl(self.js("location.search")[1:]))

    def figure(self, name):
        found = self.js("[...document.querySelectorAll('#figures div')].map(d => [...d.children].map(c => "
                        "c.textContent))")
        return {first: rest for first, *rest in found}.get(name, ["0"])

    def shows(self, name, value, seconds=8):
        """Waits until a figure shows a value."""
        end = time.monotonic() + seconds
        while not (ok := same(self.figure(name)[0], value)) and time.monotonic() < end:
            time.sleep(0.03)
        return ok


def fetch(address, path, state):
    try:
        with urllib.request.urlopen(address + path + "?" + urllib.parse.urlencode(state)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        return {"wrong": e.read().decode()}


UNITS = {"ms": 1e-3, "%": 1e-2, "TB": 1e12, "GB": 1e9, "MB": 1e6}


def same(shown, value):
    """Whether a text shows a number with its unit, rounded to the last shown digit."""
    number, unit = re.fullmatch(r"([\d.,]+) ?(\S*)", shown).groups()
    last = 10.0 ** -len(number.partition(".")[2]) if "." in number else 1
    scale = UNITS.get(unit, 1)
    return abs(float(number.replace(",", "")) * scale - value) <= 0.51 * last * scale


def numbers(page, address):
    """The state of the address, as a config and as the planner's numbers."""
    page.go(address, STATE)
    plan = fetch(address, "plan.json", STATE)
    config = json.loads(page.text("#settings"))
    flat = {f"{s}.{k}": v for s, keys in config.items() for k, v in keys.items()}
    check("the state as a config", flat == STATE, flat)
    command = page.text("#command")
    said = all(f"--{k}={v}" in command for k, v in STATE.items()) and "--plan" in command
    check("the command line", said, command)
    whole = json.loads(page.text("#whole"))
    check("all settings", whole["model"]["layers"] == 36 and whole["parallel"]["tp"] == 4, "")
    for name, value in (("Tokens/s", plan["tokens_per_second"]), ("Step", plan["step_seconds"]),
                        ("mfu", plan["mfu"]), ("Memory", plan["memory_bytes"]),
                        ("Bubble", plan["bubble"])):
        check(f"{name} is the planner's", same(page.figure(name)[0], value), (page.figure(name), value))
    sliders = page.js("[...document.querySelectorAll('#controls input[type=range]')].map(e => [e.id, "
                      "e.getAttribute('aria-valuetext')])")
    check("sliders say their values", dict(sliders)["model_layers"] == "36" and
          dict(sliders)["parallel_tp"] == "4 ranks", sliders)


def memory(page, address):
    """A bar for each ZeRO stage, against the limit."""
    state = {**STATE, "parallel.tp": 1, "parallel.pp": 1, "cluster.memory_gb": 12}
    page.go(address, state)
    left = "row.querySelector('{}').getBoundingClientRect().left"
    bars = page.js("[...document.querySelectorAll('.memory')].map(row => ({zero: +row.dataset.zero, "
                   "own: row.classList.contains('own'), over: Boolean(row.querySelector('.over')), "
                   "parts: Object.fromEntries([...row.querySelectorAll('[data-part]')].map(e => "
                   "[e.dataset.part, e.getBoundingClientRect().width])), "
                   f"limit: {left.format('.limit')} - {left.format('.bar')}}}))")
    check("a bar for each ZeRO stage", [b["zero"] for b in bars] == [0, 1, 2, 3], bars)
    start = fetch(address, "start.json", {})
    said = page.js("[...document.querySelectorAll('.memory .name .muted')].map(e => e.textContent)")
    check("what each stage shards", said == ["shards " + words for words in start["sharded"]] and
          said[:2] == ["shards nothing", "shards optimizer state"], said)
    offered = page.js("Object.fromEntries(['parallel.zero', 'memory.recompute', 'memory.offload'].map("
                      "k => [k, [...document.querySelectorAll(`input[name='${k}']`)].map(e => e.value)]))")
    check("radio buttons for every choice of the setting",
          all(values == [str(c) for c in start["choices"][key]] for key, values in offered.items()) and
          offered["memory.recompute"] == ["none", "selective", "block"], offered)
    for bar in bars:
        plan = fetch(address, "plan.json", {**state, "parallel.zero": bar["zero"]})
        scale = bar["limit"] / 12e9                             # pixels a byte
        apart = max(abs(width - plan["memory"][part] * scale) for part, width in bar["parts"].items())
        check(f"ZeRO {bar['zero']}: parts to scale with the limit", apart < 1.5, f"{apart} pixels")
        check(f"ZeRO {bar['zero']}: marked where it does not fit", bar["over"] != plan["fits"], bar)
        check(f"ZeRO {bar['zero']}: the chosen one is marked", bar["own"] == (bar["zero"] == 1), bar)
    check("stage 0 does not fit, stage 1 does", bars[0]["over"] and not bars[1]["over"], bars)


def timeline(page, address):
    """Spans on rows; the time without a span on the busiest row is the planner's bubble."""
    state = {**STATE, "train.batch_tokens": 131072}             # 32 micro-batches: every micro-batch is drawn
    page.go(address, state)
    plan, detail = (fetch(address, path, state) for path in ("plan.json", "detail.json"))
    rows = page.js("[...document.querySelectorAll('#step [data-stage]')].map(g => ({stage: +g.dataset.stage, "
                   "width: +g.querySelector('.waits').getAttribute('width'), "
                   "paths: [...g.querySelectorAll('path')].map(p => p.getAttribute('d'))}))")
    check("a row for each stage", [r["stage"] for r in rows] == [0, 1, 2, 3], [r["stage"] for r in rows])
    drawing = detail["drawing"]
    for row in rows:
        spans = next(s["spans"] for s in drawing["stages"] if s["stage"] == row["stage"])
        boxes = [float(w) for d in row["paths"] for w in re.findall(r"h([\d.]+)v", d)]
        check(f"stage {row['stage']}: every span is drawn", len(boxes) == len(spans), len(boxes))
    busiest = next(r for r in rows if r["stage"] == drawing["busiest"])
    places = [re.findall(r"M([\d.]+) \d+h([\d.]+)v", d) for d in busiest["paths"]]
    starts = sorted((float(x), float(w)) for found in places for x, w in found)
    # a span may end a pixel early
    gaps = sum(max(0, b[0] - a[0] - a[1] - 1) for a, b in zip(starts, starts[1:]))
    drawn = (gaps + starts[0][0] + busiest["width"] - sum(starts[-1])) / busiest["width"]
    check("the bubble that is drawn is the planner's", abs(drawn - plan["bubble"]) < 0.02,
          f"{drawn}, {plan['bubble']}")
    strip = page.js("[...document.querySelectorAll('.strip [data-part]')].map(e => [e.dataset.part, "
                    "+e.dataset.share])")
    check("the parts of the step sum to it", abs(sum(share for _, share in strip) - 1) < 1e-9 and
          abs(dict(strip)["bubble"] - plan["bubble"]) < 1e-9, strip)
    page.go(address, {**STATE, "train.batch_tokens": 16777216, "parallel.tp": 1, "parallel.pp": 32})
    said = page.text("#step .picture > p")
    check("what is not drawn is said", "of 32 stages" in said and "left out" in said, said)


def curve(page, address):
    page.go(address, STATE)
    points = fetch(address, "speed.json", STATE)["points"]
    drawn = page.js("[...document.querySelectorAll('#speed circle')].map(c => [+c.dataset.ranks, "
                    "c.textContent])")
    counts = [p["mesh"]["ranks"] for p in points]
    check("a point for each number of GPUs", [r for r, _ in drawn] == counts, drawn)
    check("with the planner's speed", all(f"{round(p['tokens_per_second']):,} tokens/s" in text
                                          for p, (_, text) in zip(points, drawn)), drawn)
    check("the curve says where it ends", "512 GPUs" in page.text("#speed .picture > p")
          or len(points) > 8, page.text("#speed .picture > p"))


def play(page, address):
    """Sliders, choices, presets and the search change address and numbers."""
    one = {**STATE, "parallel.tp": 1}
    page.go(address, one)
    page.slide("model.layers", 1)
    state = page.state()
    moved = state["model.layers"] == "40" and state["parallel.tp"] == "1"
    check("a slider changes the address", moved, state)
    plan = fetch(address, "plan.json", {**one, "model.layers": 40})
    check("and the numbers", page.shows("Step", plan["step_seconds"]), page.figure("Step"))
    page.click("input[name='parallel.zero'][value='3']")
    page.until("document.querySelector('.memory.own')?.dataset.zero === '3'")
    check("a choice does, too", page.state()["parallel.zero"] == "3", page.state())
    page.slide("model.channels", 1)
    state = page.state()
    check("heads follow the width", (state["model.channels"], state["model.heads"]) == ("1600", "25"), state)
    page.js("(s => { s.value = 'llama3_8B'; s.dispatchEvent(new Event('change')) })("
            "document.querySelector('#preset'))")
    page.until("document.querySelector('#model').textContent.startsWith('8,030,261,248 parameters')")
    taken = page.state()["model.kv_heads"] == "8" and "8,030,261,248" in page.text("#model")
    check("a preset", taken, page.state())
    page.click("#best")
    said = page.until("/plans|fits/.test(document.querySelector('#found').textContent)", 30)
    check("the search answers", said, page.text("#found"))
    best = {k: v for k, v in page.state().items()}
    plan = fetch(address, "plan.json", best)
    check("its mesh is taken over", plan["fits"] and page.shows("Step", plan["step_seconds"]),
          (page.figure("Step"), plan))


def mistakes(page, address):
    """Impossible settings give a line in place of numbers; sliders go on; an address's text is no HTML."""
    page.go(address, {**STATE, "parallel.tp": 3})
    check("the planner's line", "parallel.tp" in page.text("#wrong") and not page.js(
        "document.querySelector('#wrong').hidden"), page.text("#wrong"))
    check("no old numbers beside it", not page.js("document.querySelector('#figures').checkVisibility()"))
    page.slide("parallel.tp", -1)
    back = ("document.querySelector('#wrong').hidden && "
            "document.querySelector('#figures dd')?.checkVisibility()")
    check("a slider brings numbers back", page.until(back), page.state())
    page.slide("parallel.pp", 1)                # 6 stages do not divide 64 ranks
    page.until("document.querySelector('#wrong').hidden === false")
    check("old numbers are pale", page.js("document.querySelector('#results').classList.contains('old')"))
    page.go(address, {**STATE, "cluster.gpu": HOSTILE, HOSTILE: HOSTILE, "__proto__.x": "1"})
    page.text_stays_text(HOSTILE)


def screens(page, address):
    page.go(address, STATE)
    colours = ("getComputedStyle(document.body).backgroundColor + "
               "document.querySelector('.bar > div').style.background")
    light = page.js(colours)
    page.dark()
    check("dark where the screen is", page.until(f"{colours} !== {json.dumps(light)}"), light)
    names = page.js("[...document.querySelectorAll('input, select, button, svg')].filter(e => !e.closest("
                    "'label') && !(e.ariaLabel || e.textContent.trim() || e.labels?.length))"
                    ".map(e => e.outerHTML)")
    check("each control has a name", not names, names)
    page.screen(390, 800, phone=True)
    wide = "document.documentElement.scrollWidth"
    narrow = wide + " <= 390 && document.querySelector('#speed svg').clientWidth < 390"
    check("nothing is wider than a phone", page.until(narrow), page.js(wide))


def checks(address):
    with Explored() as page:
        for part in (numbers, memory, timeline, curve, play):
            part(page, address)
            page.clean(address)
        mistakes(page, address)
        far = [u for u in page.requests() if not u.startswith((address, "data:", "about:"))]
        check("no requests outside after mistakes", not far, far)
        screens(page, address)
        page.clean(address)
        page.open(address)
        page.settled()
        state = page.state()
        check("without settings, a first state", "cluster.gpu" in state and "parallel.ranks" in state, state)
        over = page.js("Boolean(document.querySelector('[data-zero=\"0\"] .over'))")
        check("of which stage 0 does not fit", over)
    end()


def picture(address, path):
    presets = {p["name"]: p["settings"] for p in fetch(address, "start.json", {})["presets"]}
    state = {k: v for k, v in PICTURE.items() if k != "preset"}
    with Explored() as page:
        page.screen(1160, 1180)
        page.go(address, {**presets[PICTURE["preset"]], **state})
        page.picture(path)


def main():
    given = [a for a in sys.argv[1:] if not a.startswith("--")]
    path = next((a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--picture=")), None)
    if len(given) > 1:
        sys.exit(__doc__)
    need_chromium()
    server = None
    if not given:
        command = ["./train_gpt", "--explore", "--port=0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        given = [server.stdout.readline().strip()]
    try:
        picture(given[0], path) if path else checks(given[0])
    finally:
        if server:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    show_help(__doc__)
    main()
