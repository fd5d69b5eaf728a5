#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run gpumap-latency, given on the command line, into what it has to withstand, and read what it says."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpumap-latency-"))
JSON, PAGE, LOG = FOLDER / "result.json", FOLDER / "page.html", FOLDER / "log"
PATIENCE = 100  # seconds, for a busy machine
VIDEO = "video/x-raw,format=NV12,width=320,height=240"


def start(*arguments, env=None):
    for file in (JSON, PAGE, LOG):
        file.unlink(missing_ok=True)
    return subprocess.Popen([PROGRAM, "--json", JSON, "--html", PAGE, "--rounds", "1", "--warmup", "2", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER, env=env)


def run(*arguments, status=0):
    """The first case of the report, and all that was said."""
    process = start(*arguments)
    said = "".join(process.communicate(timeout=PATIENCE))
    assert process.returncode == status, (arguments, process.returncode, said)
    return json.loads(JSON.read_text())["cases"][0] if JSON.exists() else None, said


def pipeline(line, *arguments, status=0):
    return run("--transports", "bar", "--count", "40", "--pipeline", line, *arguments, status=status)


def what_is_told_before_measuring():
    began = time.monotonic()
    case, said = pipeline("videotestsrc ! {sink}", status=2)
    assert case is None and "no {src}" in said and 'gpumap-latency --pipeline "videotestsrc' in said, said
    case, said = run("--csv", FOLDER / "none" / "frames.csv", status=2)
    assert case is None and "No such file or directory; nothing was measured" in said, said
    case, said = run("--frames", "4 bananas", status=2)
    assert case is None and "1080p" in said, said
    for option in ("--rate", "--timeout"):
        wrong = subprocess.run([PROGRAM, option, "nan", "--html", PAGE], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        assert wrong.returncode not in (0, 1, 2) and f"{option}: that is no number" in wrong.stderr, wrong
    JSON.write_text("{}")
    broken = subprocess.run([PROGRAM, "--from", JSON, "--html", PAGE], capture_output=True, text=True, check=False)
    assert broken.returncode == 2 and "is not what --json" in broken.stderr and not PAGE.exists(), broken
    assert time.monotonic() - began < PATIENCE, "nothing was measured"


def pipelines_that_fail():
    case, said = pipeline(f"videotestsrc ! {VIDEO} ! {{sink}} {{src}} ! gpumapkernel location=/nowhere.comp ! fakesink",
                          status=1)
    assert case["frames"] == 0 and "/nowhere.comp" in case["error"] and "/nowhere.comp" in said, said
    assert "/nowhere.comp" in PAGE.read_text()
    case, said = pipeline("notanelement ! {sink} {src} ! fakesink", status=1)
    assert "notanelement" in case["error"], case
    case, said = pipeline("videotestsrc num-buffers=1 ! {sink} {src} ! fakesink", status=1)
    assert "1 frames came, and the first 2 of a round do not count" in case["error"], case
    # Frames go in until the ring is full, and none is ever done with.
    case, said = pipeline(f"videotestsrc ! {VIDEO} ! {{sink}} {{src}} ! fakesink sync=true ts-offset=100000000000",
                          "--timeout", "1", status=1)
    assert "stalled: no frame for 1 s" in case["error"], case


def frames_that_are_dropped():
    case, _ = pipeline(f"videotestsrc is-live=true ! {VIDEO},framerate=250/1 ! {{sink}} leaky=oldest "
                       "{src} ! identity sleep-time=10000 ! fakesink sync=false")
    assert case["frames"] >= 40 and case["dropped"] > 0, case
    assert case["missed_deadlines"] > 0, "a live source has deadlines"
    assert any(event["kind"] == "drop" for outlier in case["outliers"] for event in outlier["near"]), case["outliers"]


def a_src_that_is_late():
    case, _ = run("--transports", "bar", "--frames", "4KiB", "--count", "40", "--late-src", "700")
    assert case["frames"] == 40 and not case["error"], case


def a_plan_that_is_not_shifted():
    """20 frames a second of a kernel that needs ever so much less: lateness is counted from the plan."""
    case, said = run("--transports", "bar", "--frames", "4KiB", "--count", "20", "--rate", "20", "--load", "1")
    assert case["frames"] == 20 and 0.9 < case["seconds"] < PATIENCE, case
    assert case["times"]["lateness"]["count"] == 20 and case["missed_deadlines"] <= 20, case
    assert "lateness counts from when a frame was due" in " ".join(said.split()).lower(), said


def an_end_by_the_user():
    # Each frame is a line of gpumapsrc's log: some have been measured once there are more than do not count.
    process = start("--transports", "bar,pinned", "--frames", "4KiB", "--count", "100000000",
                    env={**os.environ, "GST_DEBUG": "gpumapsrc:LOG", "GST_DEBUG_FILE": str(LOG)})
    began = time.monotonic()
    while not (LOG.exists() and re.search(r"frame 50\b", LOG.read_text(errors="replace"))):
        assert process.poll() is None and time.monotonic() - began < PATIENCE, "no frames are measured"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = "".join(process.communicate(timeout=PATIENCE))
    report = json.loads(JSON.read_text())
    assert process.returncode == 0 and "ended by the user" in report["stopped"] and "Not complete" in said, said
    assert report["cases"][0]["frames"] > 0 and PAGE.exists(), report["cases"][0]


for trouble in (what_is_told_before_measuring, pipelines_that_fail, frames_that_are_dropped, a_src_that_is_late,
                a_plan_that_is_not_shifted, an_end_by_the_user):
    trouble()
    print(trouble.__name__, "ok", flush=True)
for file in FOLDER.iterdir():
    file.unlink()
FOLDER.rmdir()
