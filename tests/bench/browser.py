"""Opens a page in a real browser and reports its elements, the browser's complaints and the requests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True)
class Seen:
    """The browser's report about a page."""

    dom: str
    console: list[str]
    requests: list[str]
    """The addresses that the browser requested, except the page itself and data in it."""
    pixels: np.ndarray

    def share_of(self, color: str) -> float:
        """The part of the screen that has exactly this colour, such as "#0f6fb5"."""
        wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        return float(np.mean((self.pixels[:, :, :3] == wanted).all(axis=2)))


def look_at(page: Path, *options: str) -> Seen:
    """Open a page. Skips the test if there is no browser; `.ci/needs` installs one."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium on this machine (Debian: chromium-headless-shell)")
    folder = page.parent
    log, shot = folder / "net.json", folder / "shot.png"
    common = [
        program, "--no-sandbox", "--headless", "--disable-gpu", "--hide-scrollbars",
        "--window-size=1100,2000", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
        "--host-resolver-rules=MAP * ~NOTFOUND", *options,
    ]  # fmt: skip
    url = page.as_uri()
    dumped = subprocess.run(
        [*common, f"--log-net-log={log}", "--dump-dom", url],
        capture_output=True,
        timeout=120,
        check=False,
    )
    subprocess.run(
        [*common, f"--screenshot={shot}", url], capture_output=True, timeout=120, check=False
    )
    console = [
        line for line in dumped.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line
    ]
    # The log may be truncated if the browser ended early, so it is searched rather than parsed.
    asked = re.findall(r'"url":\s*("(?:[^"\\]|\\.)*")', log.read_text("utf-8"))
    urls = {json.loads(text) for text in asked}
    requests = sorted(one for one in urls if not one.startswith(("file:", "data:")))
    pixels = np.asarray(ps.decode_images([shot.read_bytes()])[0])
    return Seen(dumped.stdout.decode("utf-8", "replace"), console, requests, pixels)
