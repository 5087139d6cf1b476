#!/usr/bin/python3
"""How soon --watch shows many long runs: time from the start of the process, and its memory.

    dev/bench_watch.py [--runs=100] [--steps=100000] [--program=./train_gpt] [--folder=DIR]

Writes the runs (into a temporary folder, removed at the end), starts --watch, and reads its events as a page
does: `first`, every run has come with points; `all`, every run is read to its end. Columns: seconds, seconds,
megabytes of memory at most of all its processes, megabytes of events. Then a tab of Chromium, already open,
loads the page of another process: seconds until the first curve is drawn, and all, to their last steps.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from page_tab import Page, installed

ROW = ('{"event":"train","step":%d,"loss":%.6f,"norm":%.4f,"lr":0.0003,"tokens":%d,"ms":31.25,'
       '"tokens_per_s":16384.0,"mfu":0.4125}\n')


def write_runs(folder, runs, steps):
    body = "".join(ROW % (i, 3 + 7 / i ** 0.4 + i * 7919 % 100 / 500, 1 + i * 104729 % 100 / 100, 512 * i)
                   for i in range(1, steps + 1))
    for i in range(runs):
        os.makedirs(f"{folder}/run_{i:03d}")
        with open(f"{folder}/run_{i:03d}/metrics.jsonl", "w") as f:
            f.write('{"event":"start","params":2590848,"world":1,"device":"cpu","plan_bytes":106504192}\n' +
                    body + '{"event":"done","step":%d,"peak_bytes":107614208}\n' % steps)


def events(port):
    """(event, data as text) of ./events, in order of arrival."""
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
    rest = b""
    while more := s.recv(1 << 20):
        rest += more
        while b"\n\n" in rest:
            text, _, rest = rest.partition(b"\n\n")
            m = re.search(rb"event: (\w+)\ndata: (.*)", text)
            if m:
                yield m.group(1).decode(), m.group(2)


def peak_memory(pid):
    """Memory of a process and its descendants, in megabytes."""
    below = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    total = 0
    for p in [str(pid), *below]:
        with open(f"/proc/{p}/status") as f:
            total += int((re.findall(r"VmHWM:\s+(\d+)", f.read()) or [0])[0]) / 1024
    return total


def serve(program, folder):
    p = subprocess.Popen([program, f"--watch={folder}", "--port=0"], stdout=subprocess.PIPE, text=True)
    return p, int(re.search(r":(\d+)/", p.stdout.readline()).group(1))


def measure(program, folder, runs, steps):
    start = time.time()
    p, port = serve(program, folder)
    seen, whole, first, received = set(), set(), None, 0
    for event, data in events(port):
        received += len(data)
        if event != "run":
            continue
        run = json.loads(data)
        train = run["train"]
        if train.get("step") and len(train["step"]) > 1:
            seen.add(run["run"])
            if train["step"][-1] == steps and run["state"] == "done":
                if len(train["step"]) >= min(steps, 1000):
                    whole.add(run["run"])
        if len(seen) == runs and first is None:
            first = time.time() - start
        if len(whole) == runs:
            break
    done, memory = time.time() - start, peak_memory(p.pid)
    p.send_signal(signal.SIGTERM)
    return first, done, memory, received / 1e6, p.wait()


def draw(program, folder, runs, steps):
    """Seconds until Chromium shows the curve of a run, and of all, after the start of the process."""
    with Page() as page:
        start, first, whole = time.time(), None, 0
        p, port = serve(program, folder)
        page.open(f"http://127.0.0.1:{port}/")
        while whole < runs and time.time() < start + 120:
            curves = [c for c in page.curves().values() if c[0] > 1]
            whole = sum(step == steps for _, step in curves)
            if curves and first is None:
                first = time.time() - start
        done = time.time() - start
        p.send_signal(signal.SIGTERM)
        p.wait()
    if whole < runs:
        sys.exit(f"error: after {done:.0f} s Chromium shows {whole} of {runs} runs to step {steps}")
    return first, done


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--program", default="./train_gpt")
    parser.add_argument("--folder", default=None)
    a = parser.parse_args()
    folder = a.folder or tempfile.mkdtemp(prefix="bench_watch_")
    try:
        if not os.path.isdir(folder + "/run_000"):
            write_runs(folder, a.runs, a.steps)
        first, done, memory, received, code = measure(a.program, folder, a.runs, a.steps)
        print(f"{a.runs} runs of {a.steps:,} steps: first {first:.2f} s, all {done:.2f} s, {memory:.0f} MB, "
              f"{received:.1f} MB of events, exit {code}")
        if installed():
            first, done = draw(a.program, folder, a.runs, a.steps)
            print(f"in Chromium: the first curve after {first:.2f} s, all after {done:.2f} s")
        else:
            print("no Chromium: apt-get install chromium")
    finally:
        if not a.folder:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
