#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gpumap-latency --processes 2 from the command line: what is sent arrives with its whole way, and a process that dies,
stops or is interrupted leaves no process, no socket and no question why."""
import csv
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, TOP = [pathlib.Path(argument).resolve() for argument in sys.argv[1:3]]
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gpumap-processes-"))
SOCKETS = FOLDER / "sockets"
JSON, PAGE, CSV = FOLDER / "result.json", FOLDER / "page.html", FOLDER / "frames.csv"
VIDEO = "video/x-raw,format=NV12,width=324,height=242"
FOR_EVER = ("--frames", "1003B", "--count", "100000000", "--processes", "2")
WAY = ["acquired", "first-store", "last-store", "published", "received", "launched", "visible", "released"]
ROUNDS, WARMUP = 2, 3
STARTED = []


def start(*arguments, env=None):
    for file in (JSON, PAGE, CSV):
        file.unlink(missing_ok=True)
    shutil.rmtree(SOCKETS, ignore_errors=True)
    SOCKETS.mkdir()
    # A machine that is busy is no stall.
    for option, value in (("--timeout", "100"), ("--warmup", str(WARMUP))):
        if option not in arguments:
            arguments = (*arguments, option, value)
    outputs = ("--json", JSON, "--html", PAGE, "--csv", CSV)
    process = subprocess.Popen([PROGRAM, *outputs, "--rounds", str(ROUNDS), *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=FOLDER, start_new_session=True, env=env or {**os.environ, "TMPDIR": str(SOCKETS)})
    STARTED.append(process)
    return process


def finish(process, status=0):
    """The report, and all that was said."""
    said = "".join(process.communicate(timeout=250))
    assert process.returncode == status, (process.args, process.returncode, said)
    assert not list(SOCKETS.iterdir()), "the socket's folder is left"
    assert not producers_of(process), "the producer's process is left"
    return json.loads(JSON.read_text()) if JSON.exists() else None, " ".join(said.split())


def run(*arguments, status=0):
    return finish(start(*arguments), status)


def producers_of(process):
    """Of the session of a program: that lives, or that nobody has waited for."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == process.pid and int(folder.name) != process.pid:
                found.append((int(folder.name), state))
        except (OSError, ValueError):
            continue  # it has ended, or is no process
    return found


def until(what, seconds=100):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found


def frames_so_far():
    for socket in SOCKETS.glob("*/link"):
        table = subprocess.run([TOP, "--json", "--interval", "0.1", socket], capture_output=True, text=True, check=False)
        for ring in json.loads(table.stdout)["rings"] if table.returncode == 0 else []:
            # A ring that doesn't answer yet, or no longer, has "trouble" in place of figures.
            return ring.get("frames", 0)
    return 0


def producer_of(process):
    """Once frames go through."""
    until(lambda: frames_so_far() > 50)
    (pid, _), = producers_of(process)
    return pid


def frames_of_csv():
    with open(CSV, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_rounds(rows):
    """The frames of each round, in order."""
    rows = sorted(rows, key=lambda row: (int(row["round"]), int(row["sequence"])))
    return [list(of) for _, of in itertools.groupby(rows, key=lambda row: row["round"])]


def check_way(report):
    rows = frames_of_csv()
    assert len(rows) == sum(case["frames"] for case in report["cases"]), len(rows)
    for row in rows:
        stamps = [int(row[f"{stamp}_at_ns"]) for stamp in WAY]
        assert stamps == sorted(stamps) and stamps[0] > 0, row
        assert int(row["handover_ns"]) == int(row["launched_at_ns"]) - int(row["published_at_ns"]), row
        assert int(row["bytes"]) == 1003, row


def what_is_sent_arrives():
    count = 41
    report, said = run("--frames", "1003B", "--fence", "sleep,spin", "--processes", "1,2", "--count", str(count))
    assert len(report["cases"]) == 4 and report["options"]["processes"] == ["1", "2"], report["options"]
    for case in report["cases"]:
        assert not case["error"] and case["frames"] == count and case["dropped"] == 0, case
        assert case["sent"] == count + ROUNDS * WARMUP and case["rounds"] == ROUNDS, case
        assert case["times"]["handover"]["count"] == case["times"]["release"]["count"] == count, case["times"]
        assert case["zero_copy_frames"] >= count and case["used"] == "bar" and case["cpu_ns_a_frame"] > 0, case
        producers = case["producer_pids"]
        if case["processes"] == 1:
            assert producers == [case["consumer_pid"]] * ROUNDS and "channel=" in case["line"], case
        else:
            assert len({*producers, case["consumer_pid"]}) == ROUNDS + 1, case
            assert "socket-path=" in case["line"] and "channel=" not in case["line"], case
    check_way(report)
    assert len(report["across"]) == 2, report["across"]
    for one in report["across"]:
        near, far = [case["times"]["handover"] for case in report["cases"]
                     if (case["frame"], case["fence"]) == (one["frame"], one["fence"])]
        assert (one["one_p50"], one["two_p50"], one["two_p99"]) == (near["p50"], far["p50"], far["p99"]), one
        assert one["more_p50"] == far["p50"] - near["p50"], one
    assert "in one process and in two, in turns" in said and "more at P50" in said, said
    assert "bar, spin, 2 processes" in said and 'id="across"' in PAGE.read_text(), said


def every_kind_of_producer():
    for arguments in (["--upstream", "copy", "--in-flight", "0"], ["--rate", "500", "--kernel", "none"],
                      ["--upstream", "videotestsrc", "--kernel", "identity", "--late-src", "200"]):
        report, said = run("--frames", "324x242", "--processes", "2", "--count", "30", *arguments)
        case, = report["cases"]
        assert case["frames"] == 30 and case["sent"] == 30 + ROUNDS * WARMUP and not case["error"], case
        assert "in two processes" in said and not report["across"], said
        if "--rate" in arguments:
            lateness = case["times"]["lateness"]
            assert lateness["count"] == 30 and lateness["min"] > 0 and case["negative_times"] == 0, case
            for row in frames_of_csv():
                assert 0 < int(row["due_ns"]) <= int(row["acquired_at_ns"]), row
        if "videotestsrc" in arguments:
            for rows in in_rounds(frames_of_csv()):
                for done, begun in zip(rows, rows[1:]):
                    assert int(begun["acquired_at_ns"]) >= int(done["received_at_ns"]), (done, begun)
    report, _ = run("--processes", "2", "--count", "30", "--pipeline",
                    f"videotestsrc is-live=true num-buffers={15 + WARMUP} ! {VIDEO},framerate=200/1 ! {{sink}}  "
                    "{src} is-live=true ! gpumapkernel kernel=checksum ! fakesink sync=false")
    case, = report["cases"]
    assert case["frames"] == 30 and case["missed_deadlines"] >= 0 and report["paced"], case
    assert case["times"]["lateness"]["count"] == 30 and case["times"]["lateness"]["min"] > 0, case["times"]["lateness"]


def lateness_is_told_in_both():
    """One process and two, at a rate that neither keeps: the plan is the same."""
    report, _ = run("--frames", "1003B", "--processes", "1,2", "--count", "40", "--rate", "1000000")
    for case in report["cases"]:
        assert case["frames"] == case["missed_deadlines"] == case["times"]["lateness"]["count"] == 40, case
        assert case["times"]["lateness"]["min"] > 1000, case["times"]["lateness"]


def the_frame_that_waits_for_the_connection():
    """It counts in no case, whatever --warmup says."""
    report, _ = run("--frames", "1003B", "--processes", "1,2", "--count", "12", "--warmup", "0")
    one, two = report["cases"]
    assert one["sent"] == one["frames"] == two["frames"] == 12, report["cases"]
    assert two["sent"] == 12 + ROUNDS and (one["warmup"], two["warmup"]) == (0, 1), two


def an_empty_environment():
    needed = {name: value for name, value in os.environ.items()
              if name.startswith(("GST_", "VK_", "GPUMAP_", "LD_LIBRARY_PATH"))}
    report, _ = finish(start("--frames", "1003B", "--processes", "2", "--count", "20", env=needed))
    case, = report["cases"]
    assert case["frames"] == 20, case
    socket = re.search(r'socket-path="([^"]+)"', case["line"]).group(1)
    assert not pathlib.Path(socket).parent.exists(), socket


def what_is_refused():
    for arguments, words in ((["--processes", "3"], "--processes 3: it is 1 (all in one process), 2"),
                             (["--processes", "two"], "--processes two: it is 1"),
                             (["--processes", "1,2", "--transports", "bar,pinned"],
                              "only the memory of bar can be shared between processes; measure pinned in a run"),
                             (["--processes", "2", "--pipeline", "{src} ! fakesink  videotestsrc ! {sink}"],
                              "has to have {sink} before {src}")):
        report, said = run(*arguments, status=2)
        assert report is None and words in said, said


def pipelines_that_fail():
    source = f"videotestsrc ! {VIDEO} ! {{sink}}"
    for line, words in (("notanelement ! {sink}  {src} ! fakesink", "the producer's process: no element"),
                        (source + " transport=pinned  {src} ! fakesink", "transport=bar"),
                        (source + "  {src} ! gpumapkernel location=/nowhere.comp ! fakesink", "/nowhere.comp"),
                        (source.replace("src", "src name=far") + "  {src} ! fakesink  far. ! fakesink", "far")):
        report, _ = run("--processes", "2", "--pipeline", line, status=1)
        assert words in report["cases"][0]["error"], report["cases"][0]["error"]
    report, _ = run("--processes", "2", "--timeout", "1", "--pipeline", "{sink}  {src} ! fakesink", status=1)
    assert "no frame for 1 s, after 0 that went in" in report["cases"][0]["error"], report["cases"][0]["error"]


def a_producer_that_dies():
    process = start(*FOR_EVER)
    os.kill(producer_of(process), signal.SIGKILL)
    report, said = finish(process, status=1)
    case, = report["cases"]
    assert "was killed by signal 9" in case["error"] and "dmesg" in case["error"], case["error"]
    assert "was killed by signal 9" in said and case["frames"] > 0, said


def a_producer_that_stands():
    process = start(*FOR_EVER, "--timeout", "10")
    os.kill(producer_of(process), signal.SIGSTOP)
    report, _ = finish(process, status=1)
    assert "stalled: no frame for 10 s" in report["cases"][0]["error"], report["cases"][0]["error"]


def a_producer_that_sleeps():
    """Until its next frame is due, in the other process."""
    process = start("--frames", "1003B", "--processes", "2", "--rate", "0.0001")
    until(lambda: frames_so_far() > 0)
    process.send_signal(signal.SIGTERM)
    report, _ = finish(process, status=143)
    assert "ended by the user" in report["stopped"], report["stopped"]


def an_end_by_the_user():
    process = start(*FOR_EVER)
    producer_of(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    report, _ = finish(process, status=130)
    case, = report["cases"]
    assert case["rounds"] == 0 and case["rounds_asked"] == ROUNDS, case
    assert "ended by the user" in report["stopped"] and case["frames"] > 0 and not case["error"], case
    assert case["zero_copy_frames"] > 0, "the producer has told its figures"


def a_measuring_process_that_dies():
    process = start(*FOR_EVER)
    producer_of(process)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not producers_of(process))
    until(lambda: not list(SOCKETS.iterdir()))


try:
    for test in (what_is_sent_arrives, every_kind_of_producer, lateness_is_told_in_both,
                 the_frame_that_waits_for_the_connection, an_empty_environment, what_is_refused, pipelines_that_fail,
                 a_producer_that_dies, a_producer_that_stands, a_producer_that_sleeps, an_end_by_the_user,
                 a_measuring_process_that_dies):
        test()
        print(test.__name__, "ok", flush=True)
finally:
    for one in STARTED:
        if one.poll() is None:
            one.kill()  # and its producer ends with it
    shutil.rmtree(FOLDER, ignore_errors=True)
