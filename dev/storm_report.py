"""The report of dev/storm.py: a calm run of the same steps, comparisons with it, and the table of faults."""
import collections
import glob
import hashlib
import json
import os
import statistics
import struct
import subprocess

from storm_nodes import processes_of


def last_step(run):
    steps = [int(p.rsplit("_", 1)[1]) for p in glob.glob(f"{run}/step_*") if p.rsplit("_", 1)[1].isdigit()]
    return max(steps, default=0)


def tensors(run, step):
    """Hash of the bytes of tensors in each file of a checkpoint, with their names and places."""
    hashes = {}
    for path in sorted(glob.glob(f"{run}/step_{step}/*.safetensors")):
        with open(path, "rb") as f:
            data = f.read()
        length = struct.unpack("<Q", data[:8])[0]
        head = {k: v for k, v in json.loads(data[8:8 + length]).items() if k != "__metadata__"}
        hashes[os.path.basename(path)] = (head, hashlib.sha256(data[8 + length:]).hexdigest())
    return hashes


def figures(run):
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    trained = [r for r in rows if r["event"] == "train"]
    return [(r["step"], r["loss"], r["norm"], r["tokens"]) for r in trained], [r["ms"] for r in trained]


def gaps(faults, times):
    """(when, seconds until the first step that began after it, kind) of each fault: a step was under way."""
    found = []
    for when, kind in faults:
        later = [t for t, _ in times if t > when]
        if len(later) > 1:
            found.append((when, later[1] - when, kind))
    return found


def seconds_lost(found):
    """From faults to their next steps; what two faults share counts once."""
    lost, end = 0, 0
    for when, seconds, _ in found:
        lost += max(0, when + seconds - max(when, end))
        end = max(end, when + seconds)
    return lost


def table(storm, report):
    by_kind = collections.Counter(kind for _, kind in storm.faults)
    worst = collections.defaultdict(float)
    for _, seconds, kind in report["gaps"]:
        worst[kind] = max(worst[kind], seconds)
    print("| fault | times | longest time to the next step |\n|---|---|---|")
    for kind in storm.args.faults:
        print(f"| {kind} | {by_kind[kind]} | {worst[kind]:.1f} s |")


def passed(name, ok, said):
    print(f"{'ok  ' if ok else 'FAIL'}  {name}: {said}", flush=True)
    return bool(ok)


def judge(storm, going, ended):
    args, run = storm.args, storm.run
    step = last_step(run)
    calm = os.path.join(storm.folder, "calm")
    command = ["./train_gpt", storm.config, f"--run.dir={calm}", f"--train.steps={step}",
               f"--run.slots={args.ranks}"]
    results = [passed("training goes on after the last fault", going, f"step {step}"),
               passed("all agents end by themselves", all(ended) and not storm.wrong,
                      "; ".join(storm.wrong) or "exit codes " + str(dict(storm.ends)))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False) if step else None
    if not ran or ran.returncode != 0:
        return results + [passed("a calm run", False, ran.stderr[-300:] if ran else "nothing was saved")], {}
    rows, ms = figures(run)
    calm_rows, calm_ms = figures(calm)
    times = [t for t, _ in storm.rows.times]
    wall = times[-1] - times[0]
    found = gaps(storm.faults, storm.rows.times)
    efficiency = 100 * (1 - seconds_lost(found) / wall)
    report = {"gaps": found, "steps": step, "wall": wall, "lost": seconds_lost(found),
              "calm_ms": statistics.median(calm_ms), "median_ms": statistics.median(ms),
              "efficiency": efficiency}
    results += [
        passed("each step stands once, with the figures of the calm run",
               [r[0] for r in rows] == list(range(1, step + 1)) and rows == calm_rows, f"{len(rows)} rows"),
        passed("the bytes of the calm run", tensors(run, step) == tensors(calm, step) != {}, f"step {step}"),
        passed(f"efficiency of {args.efficiency:g}% at least", efficiency >= args.efficiency,
               f"{efficiency:.1f}%")]
    return results, report


def finish(storm, results, report):
    left = processes_of(storm.folder)
    results.append(passed("no process is left", not left, str(left)))
    if report:
        table(storm, report)
        _, longest, kind = max(report["gaps"], key=lambda g: g[1], default=(0, 0, "none"))
        regroups = storm.rows.seconds
        usual = statistics.median(regroups) if regroups else 0
        print(f"{len(storm.faults)} faults, {report['steps']} steps in {report['wall']:.0f} s, "
              f"median {report['median_ms']:.0f} ms (calm {report['calm_ms']:.0f} ms): efficiency "
              f"{report['efficiency']:.1f}%; {len(regroups)} times ranks formed anew, median "
              f"{usual:.2f} s from the loss to the next step; longest from a fault to the next step "
              f"{longest:.1f} s ({kind})")
        print(f"seed {storm.args.seed}, {storm.args.ranks} ranks, {storm.args.agents} agents of "
              f"{storm.args.slots}, {'namespaces' if storm.nodes.namespaces else 'loopback'}")
    if storm.args.json:
        with open(storm.args.json, "w", encoding="utf-8") as f:
            json.dump(report | {"faults": collections.Counter(k for _, k in storm.faults),
                                "seed": storm.args.seed}, f, indent=1)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1
