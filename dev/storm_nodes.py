"""The nodes of dev/storm.py: where agents run, and how a node is cut off or its disk stops.

In namespaces a node has its own network, processes and host name; its cable leads to a bridge, the switch.
Without the right to make namespaces all agents are processes of this host, at addresses 127.0.0.2 and up.
"""
import os
import signal
import subprocess
import sys
import time

INSIDE = "STORM_INSIDE"
UNSHARE = ["unshare", "-n", "-u", "-m", "-p", "-i", "--fork", "--kill-child", "--mount-proc"]
DISK_MB = 512


def works(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


def enter_namespaces():
    """Starts this program anew in a network and mounts of its own, where that is permitted."""
    if INSIDE in os.environ:
        return os.environ[INSIDE] == "1"
    probe = "ip link add name bridge0 type bridge && ip link add name end0 type veth peer name end1"
    allowed = works(*UNSHARE, "true") and works("unshare", "-n", "-m", "sh", "-c", probe)
    os.environ[INSIDE] = "1" if allowed else "0"
    if allowed:
        os.execvp("unshare", ["unshare", "-n", "-m", "--", sys.executable, *sys.argv])
    return False


# ---------------------------------------------------------------------------------------------------------
# processes

def stat_of(pid):
    """State, parent and start time of a process; None: it is gone, or nobody has reaped it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[1]), int(fields[19]))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


class Process:
    """A process by number and start time: never another that got its number."""

    def __init__(self, pid):
        stat = stat_of(pid)
        self.pid, self.started = pid, stat and stat[2]

    def lives(self):
        stat = stat_of(self.pid)
        return stat is not None and stat[2] == self.started

    def signal(self, number):
        if self.lives():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass


def processes_of(text):
    """Processes with the text in their command line."""
    found = []
    for pid in (int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if text.encode() in f.read() and pid != os.getpid() and stat_of(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


# ---------------------------------------------------------------------------------------------------------
# nodes

class Nodes:
    """Places for agents. cut(k) takes node k's cable away; freeze(s) stops run.dir's disk for s seconds."""

    def __init__(self, folder, count, namespaces):
        self.folder, self.namespaces, self.holders, self.inits = folder, namespaces, [], []
        self.run = os.path.join(folder, "disk")
        self.mounted = False
        self.freezer = None
        os.mkdir(self.run)
        if not namespaces:
            return
        self.mount()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "name", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")
        for k in range(count):
            self.add(k)

    def mount(self):
        image = os.path.join(self.folder, "image")
        with open(image, "wb") as f:
            f.truncate(DISK_MB << 20)
        self.mounted = works("mkfs.ext4", "-q", image) and works("mount", "-o", "loop", image, self.run)

    def add(self, k):
        up = os.path.join(self.folder, f"up{k}")
        script = f"hostname node{k}; ip link set lo up; > {up}; exec sleep infinity"
        holder = subprocess.Popen([*UNSHARE, "sh", "-c", script])
        self.holders.append(holder)
        while not os.path.exists(up):
            time.sleep(0.02)
        init = children(holder.pid)[0]
        self.inits.append(init)
        run("ip", "link", "add", "name", f"cable{k}", "type", "veth", "peer", "name", "cable", "netns",
            str(init))
        run("ip", "link", "set", f"cable{k}", "master", "switch", "up")
        inside = ["nsenter", "-t", str(init), "-n", "ip"]
        run(*inside, "addr", "add", f"10.77.8.{k + 1}/24", "dev", "cable")
        run(*inside, "link", "set", "cable", "up")

    def start(self, k, command, log):
        """The command on node k: its process, or nsenter's."""
        address = f"10.77.8.{k + 1}" if self.namespaces else f"127.0.0.{k + 2}"
        inside = []
        if self.namespaces:
            inside = ["nsenter", "-t", str(self.inits[k]), "-m", "-u", "-n", "-i", "-p", "--",
                      "sh", "-c", f'cd {os.getcwd()} && exec "$@"', "sh"]
        with open(log, "ab") as out:
            return subprocess.Popen(inside + command, stdout=out, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, env=os.environ | {"MASTER_ADDR": address})

    def agent_of(self, started):
        """The agent's number here; None: not yet."""
        below = children(started.pid) if self.namespaces else [started.pid]
        return below[0] if below else None

    def cut(self, k):
        run("ip", "link", "set", f"cable{k}", "down")

    def mend(self, k):
        run("ip", "link", "set", f"cable{k}", "up")

    def freeze(self, seconds):
        # a process of its own: the disk goes on whatever becomes of this program
        script = f"fsfreeze -f {self.run} && sleep {seconds:.2f}; fsfreeze -u {self.run}"
        self.freezer = subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL)

    def frozen(self):
        return self.freezer is not None and self.freezer.poll() is None

    def close(self):
        if self.freezer:
            self.freezer.wait()
        for holder in self.holders:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        if self.mounted:
            for _ in range(50):
                if works("umount", self.run):
                    break
                time.sleep(0.1)
