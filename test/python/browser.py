# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A page in a headless Chromium, spoken to over its debugging pipe."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    """`evaluate` runs a line of JavaScript in the page."""

    def __init__(self, folder, url):
        (from_us, self._out), (self._in, to_us) = os.pipe(), os.pipe()

        def connect():  # it reads from 3 and writes to 4
            source, target = os.dup(from_us), os.dup(to_us)
            os.dup2(source, 3)
            os.dup2(target, 4)

        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self._text, self._number, self._session, self.logged = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.requests = []
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            if found.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.logged.append(found["params"])
            if found.get("method") == "Network.requestWillBeSent":
                self.requests.append(found["params"]["request"]["url"])

    def _receive(self):
        while b"\0" not in self._text:
            ready, _, _ = select.select([self._in], [], [], 60)
            piece = os.read(self._in, 1 << 16) if ready else b""
            assert piece, "the browser says nothing"
            self._text += piece
        message, _, self._text = self._text.partition(b"\0")
        return json.loads(message)

    def evaluate(self, script):
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition, patience=60):
        until = time.monotonic() + patience
        while not self.evaluate(condition):
            assert time.monotonic() < until, (condition, self.logged)
            time.sleep(0.05)

    def picture(self, file):
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)


@contextlib.contextmanager
def browsing(folder, url):
    browser = Browser(folder, url)
    try:
        yield browser
    finally:
        browser.close()
