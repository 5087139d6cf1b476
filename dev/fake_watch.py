#!/usr/bin/python3
"""A stand-in for the server of --watch, and runs that look real: for tests and for work on the page.

    dev/fake_watch.py [--port=8000] [--runs=5] [--steps=2400] [--speed=20]

Serves the page as llmc/train/watch/ has it now (reload to see an edit), with invented runs; the first one
trains at --speed steps a second.
"""
import argparse
import http.server
import json
import math
import os
import queue
import random
import subprocess
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.realpath(__file__))
PAGE = HERE + "/../llmc/train/watch/page.html"


def page():
    """The page, joined from its parts."""
    command = ["awk", "-f", HERE + "/make/join.awk", PAGE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# ---- invented runs

def train_rows(steps, every=1, seed=1, total=None):
    """Columns of train rows 1 .. steps, like a small GPT's on two cores; the norm has a spike."""
    rng, total = random.Random(seed), total or steps
    keys = ("step", "loss", "norm", "lr", "tokens", "ms", "tokens_per_s", "mfu", "norm_z", "joules",
            "seconds")
    rows = {key: [] for key in keys}
    for step in range(1, steps + 1, every):
        spike = 6 * math.exp(-(step - 0.62 * total) / 9) if step >= 0.62 * total else 0
        level = 2.9 + 0.12 * seed ** 0.5 + 5.4 / (1 + step / 25) ** 0.42 - 0.5 * step / total
        ms = 38 + 6 * rng.random() + (30 if rng.random() < 0.004 else 0)
        lr = 3e-3 * min(1, step / 100) * (1 - max(0, step - 100) / (total - 99))
        norm = 0.35 + 3 / (1 + step / 15) + 0.1 * rng.random() + spike
        loss = level + 0.12 * rng.gauss(0, 1) + 0.05 * spike
        values = (step, loss, norm, lr, 1024 * step, ms, 1024e3 / ms, 0.51 - 0.04 * rng.random(),
                  rng.gauss(0, 1) + 2 * spike, 1.7 + 0.1 * rng.random(), step * 0.041)
        for key, value in zip(keys, values):
            rows[key].append(value)
    return rows


def run_object(name, steps=2400, total=2400, seed=1, state="done", every=1):
    at = [s for s in range(0, steps + 1, max(1, total // 8))]
    losses = [3.02 + 0.12 * seed ** 0.5 + 5.3 / (1 + s / 25) ** 0.42 - 0.5 * s / total for s in at]
    text = "The lighthouse keeper and his daughter had been {} in the village, and the evening passed"
    words = ["x9 qq the", "the the of and", "walking to the", "walking an hour", "long known", "admired"]
    marks = [{"step": s, "kind": "checkpoint", "text": f"checkpoint step_{s}"} for s in at[1:]]
    marks += [{"step": steps * 5 // 8, "kind": "restart", "text": f"resumed at {steps * 5 // 8}"}]
    at_spike = int(steps * 0.62)
    marks += [{"step": at_spike, "kind": "skipped", "text": f"step {at_spike} skipped"},
              {"step": at_spike, "kind": "spike", "text": "spike: norm 6.5, z 9.1; first moved: h.1.fcw"}]
    scores = [0.25 + 0.08 * (1 - 1 / (1 + i)) for i in range(len(at))]
    peak = 104_000_000 + seed * 1_000_000
    return {
        "run": name, "reset": True, "state": state, "age": 0.4 if state == "training" else 4000,
        "config": {"about": f"seed {seed}", "train": {"steps": total, "batch_tokens": 1024},
                   "model": {"layers": 4, "channels": 192, "context": 128}},
        "start": {"params": 3_342_336, "world": 2, "device": "AMD EPYC 9B14", "plan_bytes": 106_504_192,
                  "precision": "bf16", "peak_tflops": 2.6},
        "sampled": every > 1,
        "memory": {"step": at, "peak_bytes": [peak] * len(at), "plan_bytes": [106_504_192] * len(at)},
        "train": train_rows(steps, every, seed, total),
        "val": {"step": at, "loss": losses, "bits_per_byte": [x / 2.85 for x in losses]},
        "tasks": {"hellaswag": {"step": at, "accuracy": scores, "accuracy_norm": [a + 0.02 for a in scores],
                                "documents": [10042] * len(at), "stderr": [0.004] * len(at),
                                "stderr_norm": [0.0046] * len(at), "chance": [0.25] * len(at)}},
        "comm": {"step": at[1:], "wait_ms": [4 + seed + i % 3 for i, s in enumerate(at[1:])],
                 "hidden": [0.8 + 0.01 * (i % 5) for i, s in enumerate(at[1:])]},
        "health": [health_row(steps), norms_row(steps)], "marks": sorted(marks, key=lambda m: m["step"]),
        "samples": [{"step": s, "text": text.format(words[min(i, 5)])} for i, s in enumerate(at)],
        "ranks": ranks(steps) if state == "training" else None,
    }


def health_row(step, layers=4):
    names = [f"h.{layer}.{part}.weight" for layer in range(layers)
             for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")]
    part = {"rms": 0.0213, "max": 0.31, "zeros": 0, "nonfinite": 0}
    tensors = [{"name": n, "weight": part, "grad": {**part, "rms": 1.3e-5}, "update": {**part, "rms": 2e-4}}
               for n in ["wte.weight", *names]]
    tensors[2] = {**tensors[2], "grad": {**part, "nonfinite": 0.002}}
    return {"event": "health", "step": step, "tensors": tensors,
            "activations": [{"name": f"h.{i}.residual", "rms": 1.0 + i, "max": 12.5} for i in range(layers)]}


def norms_row(step):
    return {"event": "grad_norms", "step": step, "norms": {"wte.weight": 0.5, "h.0.attn.c_attn.weight": 0.25}}


def rank(number, step, collective, seconds, age, each=4):
    """Seen `age` seconds ago, when it had done the same for `seconds`."""
    place = {"dp": number // 4, "pp": number // 2 % 2, "tp": number % 2}
    return {"rank": number, "host": f"node{number // each + 1}", "place": place, "doing": "train",
            "step": step, "collective": collective, "seconds": round(seconds + age, 1), "age": age}


def ranks(step, hosts=2, each=4):
    """All wait for rank 5."""
    return [rank(r, step, "" if r == 5 else "all_reduce dp", 5.1 if r == 5 else 4.9, [0.3, 1.2][r // each])
            for r in range(hosts * each)]


# ---- the server

def encoded(event, data):
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


class Server(http.server.ThreadingHTTPServer):
    """Keeps the last reset event of each run, for later pages. `asked`: paths of requests."""
    daemon_threads = True

    def __init__(self, port=0, token=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.token, self.asked, self.pages, self.runs = token, [], [], {}
        self.lock = threading.Lock()
        self.rows = {}                  # run -> function (from, to, points), the answer to ./rows
        self.refuse = False             # answers events with 503
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def send(self, event, data):
        """Sends an event to every page. A run with reset is kept for later pages."""
        with self.lock:
            if event == "run" and data.get("reset"):
                self.runs[data["run"]] = encoded(event, data)
            if event == "gone":
                self.runs.pop(data["run"], None)
            for listener in self.pages:
                listener.put(encoded(event, data))

    def hang_up(self):
        """Ends the connections of every page."""
        with self.lock:
            for listener in self.pages:
                listener.put(None)

    def handle_error(self, request, client_address):
        pass                            # the page went away


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, status, kind="text/plain", body=b""):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        inline = "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
        self.send_header("Content-Security-Policy",
                         f"default-src 'none'; {inline}; img-src 'self' data:; connect-src 'self'")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        self.server.asked.append(self.path)
        if self.server.token and query.get("token") != self.server.token:
            return self.answer(403)
        if url.path == "/":
            return self.answer(200, "text/html; charset=utf-8", page().encode())
        if url.path == "/events" and not self.server.refuse:
            return self.events()
        if url.path == "/rows" and query.get("run") in self.server.rows:
            rows = self.server.rows[query["run"]](int(query["from"]), int(query["to"]), int(query["points"]))
            body = json.dumps({"run": query["run"], "train": rows}).encode()
            return self.answer(200, "application/json", body)
        self.answer(503 if url.path == "/events" else 404)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        listener = queue.Queue()
        with self.server.lock:
            known = self.server.runs
            for run in known.values():
                listener.put(run)
            counts = {"folder": "runs", "version": "test", "watching": len(known), "loading": 0}
            listener.put(encoded("folder", counts))
            self.server.pages.append(listener)
        while (item := listener.get()) is not None:
            self.wfile.write(item)
            self.wfile.flush()
        with self.server.lock:
            self.server.pages.remove(listener)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("port", 8000), ("runs", 5), ("steps", 2400), ("speed", 20)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    server = Server(args.port)
    every = max(1, args.steps // 2000)
    for i in range(1, args.runs):
        name = f"sweep/lr_{i}e-3" if args.runs < 20 else f"run_{i:03d}"
        server.send("run", run_object(name, args.steps, args.steps, i + 1, "done", every))
        server.rows[name] = lambda a, b, n, seed=i + 1: train_rows(b, max(1, (b - a) // n), seed, args.steps)
    half = args.steps // 2
    server.send("run", run_object("quickstart", half, args.steps, 1, "training", every))
    print(server.address, flush=True)
    whole, step = train_rows(args.steps, 1, 1, args.steps), half
    while True:
        time.sleep(1 / args.speed if step < args.steps else 60)
        row = {key: column[step:step + 1] for key, column in whole.items()}
        step += 1
        if row["step"]:
            server.send("run", {"run": "quickstart", "state": "training", "age": 0, "train": row,
                                "ranks": ranks(step)})


if __name__ == "__main__":
    main()
