#!/usr/bin/python3
"""Faults at random upon a small run with run.elastic: does training go on, and to the bytes of a calm run?

    dev/storm.py [--seconds=60] [--every=2] [--seed=1] [--ranks=4] [--slots=2] [--agents=3] [--rows=1]
                 [--faults=KIND,...] [--longest=15] [--loopback] [--efficiency=PERCENT] [--keep]
                 [--json=FILE]

Ranks train over TCP below agents on nodes: namespaces of Linux, or with --loopback, and where namespaces
are forbidden, processes of this host. About every EVERY seconds a fault comes, drawn from the seed:

    kill_rank, kill_agent, kill_controller      SIGKILL; an agent is started again within two seconds
    stop_rank, stop_agent, stop_controller      SIGSTOP, and SIGCONT after LONGEST seconds at most
    cut                                         a node's cable is down, LONGEST seconds at most (namespaces)
    disk                                        run.dir's file system is frozen, 3 s at most (namespaces)

An agent that ends with 75, as on the losing side of a cut, is started again as well. At the end the run
saves, and one agent without faults computes the same steps on the same mesh. Prints faults by kind, steps,
efficiency (all time but that from a fault to the next step, over all time) and the longest time from a fault
to the next step. Ends with "N passed, N failed".

--rows        micro-batches of a rank in a step: longer steps
--efficiency  the least that passes
--keep        leaves the folder with logs and rows
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from show_help import show_help
from storm_nodes import Nodes, Process, children, enter_namespaces, stat_of
from storm_report import finish, judge
from storm_run import Rows, write_config

KINDS = {"kill_rank": 8, "kill_agent": 2, "kill_controller": 1, "stop_rank": 4, "stop_agent": 2,
         "stop_controller": 1, "cut": 3, "disk": 1}
OF_NAMESPACES = ("cut", "disk")
TICK = 0.02
MOST_SECONDS_TO_GO_ON = 120     # after the last fault
RESTARTED = (75, 137, -9)       # an agent that was killed, or lost; any other end is a fault of the program


class Agent:
    def __init__(self, storm, k):
        self.storm, self.k, self.popen, self.process = storm, k, None, None
        self.stopped_until, self.cut_until, self.start_at = 0, 0, 0
        self.log = os.path.join(storm.folder, f"agent{k}.log")

    def start(self):
        command = ["./train_gpt", self.storm.config, f"--run.dir={self.storm.run}"]
        self.popen, self.process = self.storm.nodes.start(self.k, command, self.log), None

    def found(self):
        if self.popen and not (self.process and self.process.lives()):
            pid = self.storm.nodes.agent_of(self.popen)
            self.process = Process(pid) if pid else None
        return self.process if self.popen and self.process and self.process.lives() else None

    def ranks(self):
        return [Process(p) for p in children(self.process.pid)] if self.found() else []

    def go_on(self):
        """Continues what is stopped; nsenter stops with its child."""
        if self.found():
            self.process.signal(signal.SIGCONT)
        if self.popen and self.popen.poll() is None and stat_of(self.popen.pid):
            os.kill(self.popen.pid, signal.SIGCONT)
        self.stopped_until = 0


class Storm:
    def __init__(self, args, folder, namespaces):
        self.args, self.folder, self.draw = args, folder, random.Random(args.seed)
        self.config = write_config(folder, args)
        self.nodes = Nodes(folder, args.agents, namespaces)
        self.run = os.path.join(self.nodes.run, "run")
        self.agents = [Agent(self, k) for k in range(args.agents)]
        self.rows = Rows(os.path.join(self.run, "metrics.jsonl"))
        self.stopped = []               # (until, rank)
        self.faults, self.ends, self.wrong = [], collections.Counter(), []

    def controller(self):
        try:
            with open(os.path.join(self.run, "lease"), encoding="utf-8") as f:
                lease = json.load(f)
        except (OSError, ValueError):
            return None
        for agent in self.agents:
            address = f"10.77.8.{agent.k + 1}" if self.nodes.namespaces else f"127.0.0.{agent.k + 2}"
            if lease["address"] == address and agent.found():
                return agent
        return None

    def tick(self, starts=True):
        now = time.monotonic()
        if not self.nodes.frozen():     # a look at a disk that stands still would wait with it
            self.rows.look()
        for agent in self.agents:
            if agent.popen and agent.popen.poll() is not None:
                code, agent.popen = agent.popen.poll(), None
                self.ends[code] += 1
                if code not in RESTARTED:
                    self.wrong.append(f"the agent on node {agent.k} ended with {code}")
                agent.start_at = now + self.draw.uniform(0, 2)
            if not agent.popen and starts and now >= agent.start_at:
                agent.start()
            if agent.stopped_until and now >= agent.stopped_until:
                agent.go_on()
            if agent.cut_until and now >= agent.cut_until:
                self.nodes.mend(agent.k)
                agent.cut_until = 0
        for until, rank in self.stopped:
            if now >= until:
                rank.signal(signal.SIGCONT)
        self.stopped = [s for s in self.stopped if now < s[0]]

    def fault(self, kind):
        """Whether there was something to hit."""
        if not self.nodes.frozen():
            self.rows.look()
        now, longest = time.monotonic(), self.args.longest
        if kind == "disk":
            if self.nodes.frozen() or not self.nodes.mounted:
                return False
            self.nodes.freeze(self.draw.uniform(0.3, min(3, longest)))
            return True
        agent = None
        if not kind.endswith("controller"):
            agent = self.draw.choice(self.agents)
        elif not self.nodes.frozen():
            agent = self.controller()
        if agent is None or not agent.found() or agent.stopped_until or agent.cut_until:
            return False
        if kind == "cut":
            self.nodes.cut(agent.k)
            agent.cut_until = now + self.draw.uniform(0.3, longest)
        elif kind.endswith("rank"):
            ranks = agent.ranks()
            if not ranks:
                return False
            rank = self.draw.choice(ranks)
            rank.signal(signal.SIGKILL if kind == "kill_rank" else signal.SIGSTOP)
            if kind == "stop_rank":
                self.stopped.append((now + self.draw.uniform(0.3, longest), rank))
        elif kind.startswith("kill"):
            agent.process.signal(signal.SIGKILL)
        else:
            agent.stopped_until = now + self.draw.uniform(0.3, longest)
            agent.process.signal(signal.SIGSTOP)
        return True

    def until(self, done, seconds, starts=True):
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end and not self.wrong:
            self.tick(starts)
            time.sleep(TICK)
        return done()

    def blow(self):
        kinds = self.args.faults
        weights = [KINDS[k] for k in kinds]
        end = time.monotonic() + self.args.seconds
        due = time.monotonic() + self.args.every
        while time.monotonic() < end and not self.wrong:
            self.until(lambda: time.monotonic() >= min(due, end), self.args.seconds)
            if time.monotonic() < due:
                break
            for _ in range(20):
                kind = self.draw.choices(kinds, weights)[0]
                if self.fault(kind):
                    self.faults.append((time.monotonic(), kind))
                    break
            due += self.args.every * self.draw.uniform(0.5, 1.5)

    def calm_down(self):
        for agent in self.agents:
            if agent.stopped_until:
                agent.go_on()
            if agent.cut_until:
                self.nodes.mend(agent.k)
            agent.cut_until = 0
        for _, rank in self.stopped:
            rank.signal(signal.SIGCONT)
        self.stopped = []
        seen = len(self.rows.times) + 10
        return self.until(lambda: len(self.rows.times) >= seen, MOST_SECONDS_TO_GO_ON)

    def end(self):
        """Saves, and ends all agents. The exit codes."""
        living = [a for a in self.agents if a.found()]
        for agent in living:
            agent.process.signal(signal.SIGTERM)
        self.until(lambda: all(a.popen is None for a in living), 60, starts=False)
        return [a.popen is None for a in living]

    def close(self):
        for agent in self.agents:
            if agent.popen:
                agent.go_on()
                if agent.found():
                    agent.process.signal(signal.SIGKILL)
                agent.popen.kill()
                agent.popen.wait()
        self.nodes.close()


# ---------------------------------------------------------------------------------------------------------

def arguments():
    parser = argparse.ArgumentParser()
    for name, default in (("seed", 1), ("ranks", 4), ("slots", 2), ("agents", 3), ("rows", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("seconds", 60), ("every", 2), ("longest", 15), ("efficiency", 0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--faults", type=lambda s: s.split(","), default=list(KINDS))
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--json")
    return parser.parse_args()


def main():
    show_help(__doc__)
    args = arguments()
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    namespaces = not args.loopback and enter_namespaces()
    if not namespaces:
        args.faults = [k for k in args.faults if k not in OF_NAMESPACES]
    folder = tempfile.mkdtemp(prefix="train_gpt_storm.", dir="/tmp")
    storm = Storm(args, folder, namespaces)
    try:
        if not storm.until(lambda: len(storm.rows.times) >= 10, 60):
            sys.exit(f"no training begins: {storm.wrong}; see {folder}")
        storm.blow()
        going = storm.calm_down()
        ended = storm.end()
        results, report = judge(storm, going, ended)
        storm.close()
        code = finish(storm, results, report)
    finally:
        storm.close()
    if code == 0 and not args.keep:
        shutil.rmtree(folder)
    else:
        print(f"logs and rows: {folder}")
    sys.exit(code)


if __name__ == "__main__":
    main()
