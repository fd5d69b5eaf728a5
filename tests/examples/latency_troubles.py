#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run gpumap-latency, given on the command line, into what it has to withstand, and read what it says."""
import csv
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
JSON, PAGE, LOG, CSV = FOLDER / "result.json", FOLDER / "page.html", FOLDER / "log", FOLDER / "frames.csv"
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also below nohup: the program heeds it then
PATIENCE = 100  # seconds, for a busy machine
VIDEO = "video/x-raw,format=NV12,width=320,height=240"


def start(*arguments, env=None):
    for file in (JSON, PAGE, LOG, CSV):
        file.unlink(missing_ok=True)
    for option, value in (("--json", JSON), ("--html", PAGE), ("--rounds", "1"), ("--warmup", "2")):
        if option not in arguments:
            arguments = (option, value, *arguments)
    return subprocess.Popen([PROGRAM, *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER, env=env)


def run(*arguments, status=0):
    """The first case of the report, and all that was said."""
    process = start(*arguments)
    said = "".join(process.communicate(timeout=PATIENCE))
    assert process.returncode == status, (arguments, process.returncode, said)
    return json.loads(JSON.read_text())["cases"][0] if JSON.exists() else None, said


def pipeline(line, *arguments, status=0):
    return run("--transports", "bar", "--count", "40", "--pipeline", line, *arguments, status=status)


def frames_that_are_only_counted():
    for transport in ("bar", "upload"):
        case, said = run("--transports", transport, "--frames", "64B", "--count", "300", "--without-stamps",
                         "--in-flight", "0", "--kernel", "identity+identity", "--output", "gpu")
        assert case["frames"] == 300 and case["sent"] == 302 and case["cut_off"] == 0, case
        assert case["times"]["whole"]["count"] == 0 and "a second" in said, said
        assert abs(case["frames_per_s"] * case["seconds"] - 300) < 1e-6 and case["cpu_ns_a_frame"] > 0, case


def a_kernel_that_stays():
    case, _ = run("--transports", "upload", "--frames", "64B", "--count", "3", "--mode", "resident")
    if json.loads(JSON.read_text())["machine"]["backend"] == "cuda":
        assert case["frames"] == 3 and case["mode"] == "resident" and "mode=resident" in case["line"], case
    else:
        assert case["frames"] == 0 and "in CUDA only" in case["not_here"], case


def what_is_told_before_measuring():
    began = time.monotonic()
    case, said = pipeline("videotestsrc ! {sink}", status=2)
    assert case is None and "no {src}" in said and 'gpumap-latency --pipeline "videotestsrc' in said, said
    case, said = run("--csv", FOLDER / "none" / "frames.csv", status=2)
    assert case is None and "No such file or directory; nothing was measured" in said, said
    case, said = run("--frames", "4 bananas", status=2)
    assert case is None and "1080p" in said, said
    for option, values in (("--count", ("-1", "0")), ("--warmup", ("-1",)), ("--slots", ("0", "1", "257", "-8")),
                           ("--rate", ("-1", "0.00001", "2000000")), ("--spin-us", ("0", "-1")),
                           ("--late-src", ("-1",)), ("--rounds", ("0", "-1")), ("--in-flight", ("-1",)), ("--load", ("-1",))):
        for value in values:
            wrong = subprocess.run([PROGRAM, option, value, "--html", PAGE], capture_output=True, text=True,
                                   timeout=PATIENCE, check=False)
            assert wrong.returncode == 2 and option in wrong.stderr and not PAGE.exists(), wrong
    for option, value in (("--frames", "1080p"), ("--upstream", "copy"), ("--kernel", "identity"), ("--mode", "launch"),
                          ("--output", "gpu")):
        wrong = subprocess.run([PROGRAM, "--pipeline", "videotestsrc ! {sink} {src} ! fakesink", option, value, "--html",
                                PAGE], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert wrong.returncode == 2 and f"{option} excludes --pipeline" in wrong.stderr, wrong
    for option in ("--rate", "--timeout"):
        wrong = subprocess.run([PROGRAM, option, "nan", "--html", PAGE], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        assert wrong.returncode == 2 and f"{option}: that is no number" in wrong.stderr, wrong
    JSON.write_text("{}")
    broken = subprocess.run([PROGRAM, "--from", JSON, "--html", PAGE], capture_output=True, text=True, check=False)
    assert broken.returncode == 2 and "is not what --json" in broken.stderr and not PAGE.exists(), broken
    itself = subprocess.run([PROGRAM, "--from", JSON, "--html", JSON], capture_output=True, text=True, check=False)
    assert itself.returncode == 2 and "is what --from reads" in itself.stderr and JSON.read_text() == "{}", itself
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


def frames_without_memory():
    """The producer's own memory cannot be had: an error, and a report."""
    limited = ["prlimit", f"--as={3 << 30}", PROGRAM, "--transports", "bar", "--frames", "2048MiB", "--upstream", "copy",
               "--count", "2", "--rounds", "1", "--json", JSON, "--html", PAGE]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 1 and json.loads(JSON.read_text())["cases"][0]["error"], ran


def frames_that_are_dropped():
    case, _ = pipeline(f"videotestsrc is-live=true ! {VIDEO},framerate=250/1 ! {{sink}} leaky=oldest "
                       "{src} ! identity sleep-time=10000 ! fakesink sync=false")
    assert case["frames"] >= 40 and case["dropped"] > 0, case
    assert case["missed_deadlines"] >= case["dropped"], "a live source has deadlines; what is dropped misses its own"
    assert any(event["kind"] == "drop" for outlier in case["outliers"] for event in outlier["near"]), case["outliers"]


def each_output_is_tried():
    """One that cannot be written costs no other, and is told before measuring where that can be known."""
    small = ["--transports", "bar", "--frames", "1003B", "--count", "5"]
    case, said = run(*small, "--csv", "/dev/full", status=1)
    assert case["frames"] == 5 and PAGE.exists() and "cannot write /dev/full: No space left on device" in said, said
    case, said = run(*small, "--json", "/dev/full", "--csv", CSV, status=1)
    assert case is None and PAGE.exists() and len(frames_of_csv()) == 5 and "/dev/full" in said, said
    for out in ("full", "closed"):
        if out == "full":
            stdout = os.open("/dev/full", os.O_WRONLY)
        else:
            nobody, stdout = os.pipe()
            os.close(nobody)
        for file in (JSON, PAGE):
            file.unlink(missing_ok=True)
        ran = subprocess.run([PROGRAM, *small, "--rounds", "1", "--json", JSON, "--html", PAGE], stdout=stdout,
                             stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        os.close(stdout)
        assert ran.returncode == 1 and "cannot write to standard output" in ran.stderr, ran
        assert json.loads(JSON.read_text())["cases"][0]["frames"] == 5 and PAGE.exists(), out
    case, said = run(*small, "--csv", FOLDER, status=2)
    assert case is None and "Is a directory; nothing was measured" in said, said
    long_name = FOLDER / ("x" * 252)  # of 255 that a name may have: what is written beside it has five more
    case, said = run(*small, "--csv", long_name, status=2)
    assert case is None and "File name too long; nothing was measured" in said and not long_name.exists(), said
    for twice in (JSON, FOLDER / ".." / FOLDER.name / JSON.name):
        case, said = run(*small, "--csv", twice, status=2)
        assert case is None and "is asked for twice" in said and "nothing was measured" in said, said
    # What is written beside the page has the name of the other.
    part = pathlib.Path(f"{PAGE}.part")
    case, said = run(*small, "--csv", part, status=2)
    assert case is None and "is asked for twice" in said and not part.exists(), said
    case, said = run(*small, "--frames", "1003B,1003B", "--fence", "sleep,sleep")
    assert len(json.loads(JSON.read_text())["cases"]) == 1, said
    pipe = FOLDER / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        run(*small, "--csv", pipe)
        assert len(reader.stdout.read().splitlines()) == 6, "a line of names, and a frame each"
    pipe.unlink()
    report = JSON.read_text()
    again = [PROGRAM, "--from", JSON, "--html", PAGE]
    for wrong in ([*again, "--csv", CSV], [*again, "--json", FOLDER / "other.json"]):
        refused = subprocess.run(wrong, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert refused.returncode == 2 and "excludes" in refused.stderr, refused
    part.write_text(report)
    refused = subprocess.run([PROGRAM, "--from", part, "--html", PAGE], capture_output=True, text=True,
                             timeout=PATIENCE, check=False)
    assert refused.returncode == 2 and part.read_text() == report and JSON.read_text() == report, refused
    part.unlink()
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = subprocess.run(again, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 1 and "cannot write to standard output" in ran.stderr, ran
    assert {file.name for file in FOLDER.iterdir()} <= {JSON.name, PAGE.name, CSV.name}, list(FOLDER.iterdir())


def frames_of_csv():
    with open(CSV, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def as_many_in_flight_as_are_told():
    """Upstream begins a frame when few enough are under way, whichever element upstream is."""
    for upstream in ("in-place", "videotestsrc"):
        for asked in (1, 3):
            run("--transports", "bar", "--frames", "324x242", "--count", "40", "--upstream", upstream, "--csv", CSV,
                "--in-flight", str(asked))
            report = json.loads(JSON.read_text())
            assert report["options"]["in_flight"] == asked, report["options"]
            rows = sorted(frames_of_csv(), key=lambda row: int(row["sequence"]))
            assert len(rows) == 40, len(rows)
            for done, begun in zip(rows, rows[asked:]):
                assert int(begun["acquired_at_ns"]) >= int(done["visible_at_ns"]), (upstream, asked, done, begun)


def a_src_that_is_late():
    case, _ = run("--transports", "bar", "--frames", "4KiB", "--count", "40", "--late-src", "700")
    assert case["frames"] == 40 and not case["error"], case


def a_plan_that_is_not_shifted():
    """20 frames a second of a kernel that needs ever so much less: lateness is counted from the plan."""
    case, said = run("--transports", "bar", "--frames", "4KiB", "--count", "20", "--rate", "20", "--load", "1")
    assert case["frames"] == 20 and 0.9 < case["seconds"] < PATIENCE, case
    assert case["times"]["lateness"]["count"] == 20 and case["missed_deadlines"] <= 20, case
    assert "lateness counts from when a frame was due" in " ".join(said.split()).lower(), said


def lateness_is_what_the_clock_says():
    """A frame is due on the clock that the stamps are of: its producer begins it no earlier, and it is later than that
    by all that follows."""
    period_ns = 10**9 // 50
    for arguments in (["--upstream", "in-place"], ["--upstream", "copy", "--kernel", "none"], ["--fence", "spin"],
                      ["--upstream", "videotestsrc"]):
        case, _ = run("--transports", "bar", "--frames", "324x242", "--count", "15", "--rate", "50", "--warmup", "0",
                      "--csv", CSV, *arguments)
        lateness = case["times"]["lateness"]
        assert case["frames"] == lateness["count"] == 15 and lateness["min"] > 0, (arguments, lateness)
        assert case["negative_times"] == 0 and all(time["negative"] == 0 for time in case["times"].values()), case
        rows = sorted(frames_of_csv(), key=lambda row: int(row["sequence"]))
        due = [int(row["due_ns"]) for row in rows]
        assert all(abs(after - before - period_ns) <= 1 for before, after in zip(due, due[1:])), due
        for row in rows:
            result = int(row["visible_at_ns"] or row["received_at_ns"])
            assert int(row["lateness_ns"]) == result - int(row["due_ns"]), row
            # videotestsrc writes a frame before its time, and hands it on when that comes.
            begun = row["published_at_ns"] if "videotestsrc" in arguments else row["acquired_at_ns"]
            assert int(row["due_ns"]) <= int(begun), (arguments, row)


def deadlines_that_are_missed():
    """A frame each microsecond, of which no machine makes that many: each is later than the one before it."""
    for arguments in ([], ["--fence", "spin"], ["--upstream", "copy"]):
        case, _ = run("--transports", "bar", "--frames", "4KiB", "--count", "50", "--rate", "1000000", *arguments)
        lateness = case["times"]["lateness"]
        assert case["frames"] == lateness["count"] == case["missed_deadlines"] == 50, (arguments, case)
        assert lateness["min"] > 1000 and lateness["p99"] > lateness["p50"] > case["times"]["through"]["min"], lateness


def a_rate_that_is_slow():
    """Between two frames more time passes than --timeout, and that is no stall."""
    case, _ = run("--transports", "bar", "--frames", "4KiB", "--count", "1", "--warmup", "1", "--rate", "0.2",
                  "--timeout", "4.5")
    assert case["frames"] == 1 and case["seconds"] < PATIENCE and not case["error"], case


def a_producer_that_sleeps():
    """Until its next frame is due, which is in three hours: it is woken all the same."""
    for sent, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
        process = start("--transports", "bar", "--frames", "4KiB", "--warmup", "0", "--rate", "0.0001",
                        env={**os.environ, "GST_DEBUG": "gpumapsrc:LOG", "GST_DEBUG_FILE": str(LOG)})
        wait_for_frame(process, 0)
        process.send_signal(sent)
        said = "".join(process.communicate(timeout=PATIENCE))
        report = json.loads(JSON.read_text())
        assert process.returncode == status and "ended by the user" in report["stopped"], said
        assert report["cases"][0]["rounds"] == 0 and "not whole: 0 of 1 rounds ran to their end" in said, said


def wait_for_frame(process, number):
    """Each frame is a line of gpumapsrc's log."""
    began = time.monotonic()
    while not (LOG.exists() and re.search(rf"frame {number}\b", LOG.read_text(errors="replace"))):
        assert process.poll() is None and time.monotonic() - began < PATIENCE, "no frames are measured"
        time.sleep(0.05)


def an_end_by_the_user():
    # Some have been measured once there are more than do not count.
    process = start("--transports", "bar,pinned", "--frames", "4KiB", "--count", "100000000",
                    env={**os.environ, "GST_DEBUG": "gpumapsrc:LOG", "GST_DEBUG_FILE": str(LOG)})
    wait_for_frame(process, 50)
    process.send_signal(signal.SIGINT)
    said = "".join(process.communicate(timeout=PATIENCE))
    report = json.loads(JSON.read_text())
    assert process.returncode == 130 and "ended by the user" in report["stopped"] and "Not complete" in said, said
    case = report["cases"][0]
    assert case["frames"] > 0 and case["rounds"] == 0 and case["rounds_asked"] == 1 and PAGE.exists(), case
    assert "not whole: 0 of 1 rounds ran to their end" in said, said


for trouble in (what_is_told_before_measuring, pipelines_that_fail, frames_without_memory, frames_that_are_dropped,
                each_output_is_tried, as_many_in_flight_as_are_told, a_src_that_is_late, a_plan_that_is_not_shifted,
                lateness_is_what_the_clock_says, deadlines_that_are_missed, a_rate_that_is_slow, a_producer_that_sleeps,
                frames_that_are_only_counted, a_kernel_that_stays, an_end_by_the_user):
    trouble()
    print(trouble.__name__, "ok", flush=True)
for file in FOLDER.iterdir():
    file.unlink()
FOLDER.rmdir()
