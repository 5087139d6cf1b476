"""A page in headless Chromium, driven over --remote-debugging-pipe, for tests. Needs no packages."""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
         "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars"]
SECONDS = 30                            # for an answer of Chromium


def installed():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pipe():
    """Both ends of a pipe, numbered from 20 on: 3 and 4 are Chromium's own."""
    return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in os.pipe()]


class Chromium:
    """A tab. `said` collects the events between answers; a new address empties `said`."""

    def __init__(self, width=1280, height=900):
        self.count, self.buffer, self.said, self.session = 0, b"", [], None
        self.folder = tempfile.mkdtemp(prefix="chromium_")
        (inlet, self.writes), (self.reads, outlet) = pipe(), pipe()
        flags = FLAGS + [f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank"]
        redirect = f'exec "$0" "$@" 3<&{inlet} 4>&{outlet}'
        command = ["bash", "-c", redirect, installed(), *flags]
        self.process = subprocess.Popen(command, pass_fds=(inlet, outlet), start_new_session=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(inlet)
        os.close(outlet)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.reads)
        os.close(self.writes)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method, **params):
        """The result of a command of the DevTools protocol."""
        self.count += 1
        session = {"sessionId": self.session} if self.session else {}
        message = {"id": self.count, "method": method, "params": params, **session}
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            self.said.append(answer)

    def next_message(self):
        while b"\0" not in self.buffer:
            if not select.select([self.reads], [], [], SECONDS)[0]:
                raise TimeoutError("Chromium does not answer")
            more = os.read(self.reads, 1 << 20)
            if not more:
                raise EOFError("Chromium ended")
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, address):
        self.ask("Page.navigate", url="about:blank")
        self.js("0")
        self.said.clear()
        self.ask("Page.navigate", url=address)

    def js(self, expression):
        """The value of an expression in the page; an exception in the page is raised here."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def until(self, expression, seconds=8):
        """Waits until an expression is true; its last value."""
        end = time.monotonic() + seconds
        while not (value := self.js(expression)) and time.monotonic() < end:
            time.sleep(0.03)
        return value

    # -- input

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type="mouse" + kind, x=x, y=y, **more)

    def drag(self, x0, y0, x1, y1):
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("Moved", x0, y0)
        self.mouse("Pressed", x0, y0, **held)
        for i in range(1, 5):
            self.mouse("Moved", x0 + (x1 - x0) * i / 4, y0 + (y1 - y0) * i / 4, button="left", buttons=1)
        self.mouse("Released", x1, y1, **held)

    def double_click(self, x, y):
        for count in (1, 2):
            self.mouse("Pressed", x, y, button="left", buttons=1, clickCount=count)
            self.mouse("Released", x, y, button="left", clickCount=count)

    def tap(self, x, y):
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def key(self, key, modifiers=0):
        """Presses a key by its name ("ArrowLeft", "+"); modifiers: 8 is Shift."""
        text = {"text": key} if len(key) == 1 else {}
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "Home": 36,
                 "End": 35, "Tab": 9, " ": 32}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text, **code)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, **code)

    # -- appearance

    def screen(self, width, height, phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone,
                 deviceScaleFactor=2 if phone else 1)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)

    def dark(self, on=True):
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def picture(self, path=None):
        """A PNG of the window, as bytes."""
        data = base64.b64decode(self.ask("Page.captureScreenshot")["data"])
        if path:
            with open(path, "wb") as f:
                f.write(data)
        return data

    # -- events of the page

    def told(self, method):
        self.js("0")
        return [m["params"] for m in self.said if m.get("method") == method]

    def errors(self):
        """Exceptions, console.error and failed loads, except of Chromium's own request for an icon."""
        found = [e["exceptionDetails"].get("exception", {}).get("description", e["exceptionDetails"]["text"])
                 for e in self.told("Runtime.exceptionThrown")]
        found += [str([a.get("value") for a in e["args"]]) for e in self.told("Runtime.consoleAPICalled")
                  if e["type"] == "error"]
        found += [f"{e['entry']['text']} {e['entry'].get('url', '')}" for e in self.told("Log.entryAdded")
                  if e["entry"]["level"] == "error"]
        return [e for e in found if "favicon.ico" not in e]

    def requests(self):
        return [e["request"]["url"] for e in self.told("Network.requestWillBeSent")]
