#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_run.py RUN: does the whole run come to its tables, and do these read what a GPU leaves?"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RUN = sys.argv[1]


def tables_of(folder):
    return subprocess.run([RUN, "--table", folder], check=True, capture_output=True, text=True).stdout.splitlines()


def the(lines, begin):
    found = [line for line in lines if line.startswith(begin)]
    assert len(found) == 1, (begin, lines)
    return found[0]


def case(transport, us, mode="launch", kernel="nothing", frame="64x42", **more):
    times = {"count": 9, "p50": us * 1000, "p99": 17100, "p999": 9870, "max": 321000}
    return {"transport": transport, "mode": mode, "kernel": kernel, "frame": frame, "frames": 9,
            "times": dict.fromkeys(("result", "through", "write", "notice"), times), **more}


def row(path, detail, us=7.53, p99=18.5, **more):
    return {"path": path, "detail": detail, "median_us": us, "p99_us": p99, "p999_us": 8.76, "max_us": 321.0,
            "times": 1000, **more}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    assert "not measured" in the(tables_of(folder), "4 KiB, three elements, resident, copy_seen: P50")

    # As a GPU's run would leave it, with figures that no default makes.
    machine = {"device": "made up", "driver": "1", "cpu": "3", "software": False}
    for file, content in {
        "small": {"machine": machine, "commit": "", "cases": [
            case("bar", 10.94), case("bar", 7.53, "resident"), case("bar", 9.37, "resident", "nothing+nothing"),
            case("upload", 5.25, "resident"), case("cudaupload", 37.65)]},
        "ten-million": {"cases": [case("bar", 7.53, "resident")]},
        "rates": {"cases": [case("bar", 0, "resident", "identity", "64B", frames_per_s=351234.5),
                            case("upload", 0, "launch", "identity", "64B", frames_per_s=64321.0)]},
        "copy": {"cases": [case("bar", 100.0, frame="1080p", cpu_ns_a_frame=550000.0),
                           case("cudaupload", 400.0, frame="1080p", cpu_ns_a_frame=500000.0)]},
        "element": {"cases": [case("cudaupload", 46.0, kernel="convert"), case("cudaupload", 63.0, kernel="gst:cudaconvert")]},
        "bells": {"modes": [
            {"mode": "pingpong", "rows": [{"path": "BAR", "detail": "4-byte doorbell", "median_us": 1.75}]},
            {"mode": "bw", "rows": [{"path": one, "bytes": 64, "detail": "warm", "threads": 1, "median_us": us}
                                    for one, us in (("bar", 0.2), ("bare loop, avx2", 0.19), ("bar, memcpy", 0.3))]}]},
        "library": {"targets": [{"claim": "convert, over a copy", "bound": 1 / 0.7, "value": 0.78}], "modes": [
            {"mode": "stalls", "rows": [row("threads that spin", "7 us of work")]},
            {"mode": "ring", "rows": [row("publish() to receive()", "both spin", 0.279),
                                      row("two threads", "256 slots", 0.279)]},
            {"mode": "kernels", "rows": [row("gpumap", "convert", ratio=0.78), row("a copy", "convert", 9.65)]},
            {"mode": "launch", "rows": [
                row("by a graph", "seen"), row("by a graph", "returned", 3.25), row("beside a full GPU", "beside", p99=2000),
                row("it stays, sm-share=0.125, beside sm-share=0.875", "beside")]}]}}.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    (folder / "loop.txt").write_text(
        "kernel           commands.cu, launched for each frame, busy-poll=1000\n"
        "frames           50,000 in 2.26 s, 100 before them do not count\nrate             22,170 frames/s\n"
        "jitter           9.00 us RMS\nlate             145 frames came more than 50 us after the median\n"
        "kernel           commands.cu, which stays on the GPU, busy-poll=1000\n"
        "frames           1,000,000 in 50 s, 100 before them do not count\nrate             19,999 frames/s\n"
        "jitter           1.90 us RMS\nlate             1 frames came more than 50 us after the median\n")
    for name, took in ("cudaupload", "3.75"), ("gpumapupload", "2.5"), ("gpumapsrc", "2.6"):
        (folder / f"chain-{name}.txt").write_text(f"Execution ended after 0:00:0{took}\n")
    (folder / "packets-alone.txt").write_text("Execution ended after 0:00:01.250000000\n")
    (folder / "packets.txt").write_text("gpumapsink0: 3750 frames: 0 written in place\nExecution ended after 0:00:02.5\n")
    lines = tables_of(folder)
    for begin, figure, verdict in (
            ("1,472-byte buffers a second into `spectrum`", "1200000", "met"),
            ("their source's time alone, of that", "0.50", ""),
            ("| three elements, launched |", "| 10.9 | 17.1 | 9.87 |", ""),
            ("| 1080p | bar |", "| 100 | 100 | 550 |", ""),
            ("| a launch, by a graph |", "| 7.53 (3.25) |", ""),
            ("| convert |", "| 7.53 | a copy: 9.65 | 0.78 |", ""),
            ("ring: publish to receive, P50, ns", "279", "met"),
            ("ring: empty slots a second, of 256", "3584229", "missed"),
            ("4 KiB, three elements, launched, nothing: P50", "10.9 us", "missed"),
            ("4 KiB, `gpumapupload`, resident, nothing: P50", "5.2 us", "met"),
            ("4 KiB, three elements, launched, nothing: over cudaupload", "0.291", "met"),
            ("4 KiB, three elements, resident, nothing: over cudaupload", "0.200", "missed"),
            ("4 KiB, resident: P99.9", "9.9 us", "met"),
            ("7 us of a thread that only spins: P99.9", "8.8 us", ""),
            ("64B frames/s, three elements, resident", "351234", "met"),
            ("64B frames/s, `gpumapupload`, launched", "64321", "missed"),
            ("a second resident element over a bare 4-byte doorbell", "1.05", "missed"),
            ("copy of 64 B", "0.95", "missed"),
            ("a copied 1080p frame, bar, over cudaupload", "0.25", "met"),
            ("its CPU time, bar, over cudaupload", "1.10", "missed"),
            ("`convert` behind cudaupload over cudaconvert", "0.73", ""),
            ("convert, over a copy", "0.78", "met"),
            ("`cudaconvert ! cudadownload` behind gpumapupload over", "1.50", "met"),
            ("`cudaconvert ! cudadownload` behind gpumapsrc over", "1.44", "missed"),
            ("P99 beside a full GPU, sm-share, launched", "not measured", ""),
            ("P99 beside a full GPU, sm-share, resident", "18.5 us", "met"),
            ("loop, launched: frames/s", "22170", "met"),
            ("loop, launched: over 50 us late", "2900.0", "missed"),
            ("loop, resident: frames/s", "19999", "missed"),
            ("loop, resident: jitter RMS", "1.9 us", "met"),
            ("loop, resident: over 50 us late", "1.0", "met")):
        line = the(lines, begin)
        assert figure in line and (verdict in line if verdict else " met" not in line.split(figure)[1]), line

with tempfile.TemporaryDirectory() as name:
    done = subprocess.run([RUN, "--quick", "--out", name], capture_output=True, text=True, env=os.environ)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    lines = tables_of(name)
    for begin in ("4 KiB, three elements, launched, copy_seen: P50", "4 KiB, `gpumapupload`, launched, nothing: P50",
                  "64B frames/s, three elements, launched", "64B frames/s, `gpumapupload`, launched",
                  "7 us of a thread that only spins: P99.9", "copy of 4096 B", "loop, launched: jitter RMS",
                  "1,472-byte buffers a second into `spectrum`",
                  "loop, launched beside 8 busy processes: frames/s"):
        assert "not measured" not in the(lines, begin), lines
    for title in ("One frame", "Small frames", "Frames of upstream's own", "Kernels and launches", "Between processes"):
        assert any(line.startswith(title) for line in lines), (title, lines)
