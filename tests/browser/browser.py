"""A real Chromium without a window, driven over its DevTools protocol: JSON messages, each with a zero behind it, through
two pipes. Every wait has an end."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

# On Ubuntu, chromium is a snap; any of these will do.
NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 60


def find():
    """The path of a browser, or None. $CONCERT_BROWSER names another."""
    return next(filter(None, map(shutil.which, (os.environ.get("CONCERT_BROWSER", ""), *NAMES))), None)


class Browser:
    """One browser with one page. Whatever the page logs, fails at or asks the network for is kept."""

    def __init__(self, program, width=1280, height=720, dark=False):
        self.problems, self.requests = [], []  # lines; URLs
        self.last_id, self.bytes = 0, b""
        # Its processes may write for a moment longer than the first of them lives.
        self.folder = tempfile.TemporaryDirectory(prefix="concert-browser.", ignore_cleanup_errors=True)
        self.start(program)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def start(self, program):
        self.session = None
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # It reads from 3 and writes to 4. Without a sandbox, which containers lack: it only sees pages of our own.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", program, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)

    def close(self):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- The protocol

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while (answer := self.receive(method)).get("id") != self.last_id:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def receive(self, what):
        """The next message, whose news are kept."""
        deadline = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.bytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise TimeoutError(f"the browser did not answer {what} within {TIMEOUT_S} s")
            read = os.read(self.from_browser, 1 << 20)
            if not read:
                raise RuntimeError(f"the browser ended at {what}")
            self.bytes += read
        text, self.bytes = self.bytes.split(b"\0", 1)
        message = json.loads(text)
        self.keep(message.get("method"), message.get("params", {}))
        return message

    def keep(self, method, news):
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(news["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{news['type']}: {json.dumps(news['args'])}")
        elif method == "Log.entryAdded":
            self.problems.append(f"{news['entry']['level']}: {news['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(news["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {news['message']}")

    # ---- What a test asks for

    def open(self, path):
        """Loads the page and waits until it has drawn."""
        self.call("Page.navigate", url=f"file://{path}")
        deadline = time.monotonic() + TIMEOUT_S
        while (state := self.run("document.body?.dataset.state")) != "ready":
            if state == "failed" or time.monotonic() > deadline:
                raise RuntimeError(f"{path} is {state}: {self.problems}")

    def run(self, script):
        """The value of an expression in the page, as JSON has it; a promise's when it is kept."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText")

    def texts(self, selector):
        return self.run(f"Array.from(document.querySelectorAll({json.dumps(selector)}), (each) => each.innerText)")

    def click(self, selector):
        x, y = self.run("""((element) => {
          element.scrollIntoView({block: 'nearest'});
          const {x, y, width, height} = element.getBoundingClientRect();
          return [x + width / 2, y + height / 2];
        })(document.querySelector(%s))""" % json.dumps(selector))
        self.press(x, y)

    def press(self, x, y, to=None):
        """Clicks, or drags to another place."""
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        if to:
            self.mouse("mouseMoved", *to, button="left")
        self.mouse("mouseReleased", *(to or (x, y)), button="left", clickCount=1)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)
        self.settle()

    def key(self, key):
        more = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        """Instead of what is selected; nothing deletes it."""
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.call("Input.dispatchKeyEvent", type="keyDown", key="Delete", windowsVirtualKeyCode=46)
        self.settle()

    def heap_bytes(self):
        """What the page's scripts hold, once what nobody needs has been collected."""
        self.call("HeapProfiler.collectGarbage")
        usage = self.call("Runtime.getHeapUsage")
        return usage["usedSize"] + usage.get("embedderHeapUsedSize", 0) + usage.get("backingStorageSize", 0)

    def picture(self):
        """A PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
