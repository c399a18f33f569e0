"""A headless Chromium that a test controls by the DevTools protocol, over pipes: no port and no library."""

import itertools
import json
import os
import select
import subprocess
import tempfile
import time

PATIENCE = 60  # s


class Browser:
    """Context manager. `errors` has the console's errors and exceptions, `requests` the URLs of all pages."""

    def __init__(self):
        self.errors, self.requests = [], []
        self._ids = itertools.count(1)
        self._answers, self._rest, self._loads, self._session = {}, b"", 0, None

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = ["chromium", "--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--no-sandbox",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync",
                   "--window-size=1400,1000", f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe",
                   "about:blank"]
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to descriptor 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "bash", *command], pass_fds=(commands, events),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(commands)
        os.close(events)
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._commands)  # ends Chromium
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._events)
        self._folder.cleanup()

    def call(self, method, **parameters):
        """Calls a method and returns its result. Raises RuntimeError if Chromium refuses it or does not answer."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        self._wait(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def value(self, expression):
        """Returns the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def load(self, action):
        """Calls `action`, which must lead to another page, and waits until that page and its images are loaded."""
        loads = self._loads
        action()
        self._wait(lambda: self._loads > loads, "a page")

    def open(self, url):
        self.load(lambda: self.call("Page.navigate", url=url))

    def wait_for(self, expression):
        """Waits until a JavaScript expression is true, and returns its value."""
        end = time.monotonic() + PATIENCE
        while not (found := self.value(expression)):
            if time.monotonic() > end:
                raise RuntimeError(f"not true after {PATIENCE} s: {expression}")
            time.sleep(0.05)
        return found

    def _wait(self, done, what):
        end = time.monotonic() + PATIENCE
        while not done():
            ready, _, _ = select.select([self._events], [], [], max(0, end - time.monotonic()))
            data = os.read(self._events, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(f"no answer from Chromium in {PATIENCE} s: {what}")
            *messages, self._rest = (self._rest + data).split(b"\0")
            for message in messages:
                self._handle(json.loads(message))

    def _handle(self, message):
        method, content = message.get("method"), message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(content["exceptionDetails"].get("exception", {}).get("description") or str(content))
        elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "assert", "warning"):
            self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in content["args"]))
        elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{content['entry']['text']} {content['entry'].get('url', '')}")
