#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_run_latency.py RUN_LATENCY: does the whole run come to its table, and does the table read what a GPU leaves?"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RUN = sys.argv[1]


def table_of(folder):
    done = subprocess.run([RUN, "--table", folder], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def the(lines, begin):
    found = [line for line in lines if line.startswith(begin)]
    assert len(found) == 1, (begin, lines)
    return found[0]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    lines = table_of(folder)
    assert "not measured" in the(lines, "4 KiB, three elements, resident, identity: P50"), lines

    # As a GPU's run would leave it, with figures that no default makes.
    path = {"median_us": 7.53, "p99_us": 17.1, "p999_us": 9.87, "max_us": 321.0}
    results = [dict(path, path=one, kernel=kernel, median_us=us) for kernel in ("nothing", "identity")
               for one, us in (("pipeline", 10.94), ("pipeline, resident", 7.53), ("pipeline, two resident", 9.37),
                               ("rival", 37.65))]
    (folder / "first-light.json").write_text(json.dumps({
        "device": "made up", "vulkan_driver": "1", "cuda_driver": "2", "cpu": "3", "gstreamer": "4", "commit": "",
        "software": False, "rival": "cudaupload", "frames": 50000, "results": results,
        "rates": [{"bytes": 64, "mode": "resident", "overlapping": True, "frames_per_s": 351234.5},
                  {"bytes": 64, "mode": "launch", "overlapping": False, "frames_per_s": 64321.0}]}))
    (folder / "ten-million.json").write_text(json.dumps({"frames": 10000000, "results": [results[5]]}))
    (folder / "stall.json").write_text(json.dumps({"frame_us": 7.0, "frames": 1000, "frame": dict(path, p999_us=8.76)}))
    (folder / "bench.json").write_text(json.dumps({"modes": [
        {"mode": "pingpong", "rows": [{"path": "BAR", "bytes": 4, "median_us": 1.75}]},
        {"mode": "bw", "rows": [{"path": one, "bytes": 64, "detail": "warm", "threads": 1, "median_us": us}
                                for one, us in (("bar", 0.2), ("bare loop, avx2", 0.19), ("bar, memcpy", 0.3))]}]}))
    (folder / "sink.json").write_text(json.dumps({"modes": [{"rows": [
        {"path": one, "detail": "1920x1080 element", "cpu_us": us} for one, us in (("cudaupload", 500.0),
                                                                                 ("gpumapsink", 550.0))]}]}))
    (folder / "launch.json").write_text(json.dumps({"beside": [
        {"case": "beside a full GPU", "seen": {"p99_us": 2000.0}},
        {"case": "sm-share=0.125, beside sm-share=0.875", "error": "too little"},
        {"case": "it stays, sm-share=0.125, beside sm-share=0.875", "seen": {"p99_us": 18.5}}]}))
    (folder / "loop.txt").write_text(
        "kernel           commands.cu, launched for each frame, busy-poll=1000\n"
        "frames           50,000 in 2.26 s, 100 before them do not count\nrate             22,170 frames/s\n"
        "jitter           9.00 us RMS\nlate             145 frames came more than 50 us after the median\n"
        "kernel           commands.cu, which stays on the GPU, busy-poll=1000\n"
        "frames           1,000,000 in 50 s, 100 before them do not count\nrate             19,999 frames/s\n"
        "jitter           1.90 us RMS\nlate             1 frames came more than 50 us after the median\n")
    lines = table_of(folder)
    for begin, figure, verdict in (
            ("4 KiB, three elements, launched, identity: P50", "10.9 us", "missed"),
            ("4 KiB, three elements, resident, nothing: P50", "7.5 us", "missed"),
            ("  launched over cudaupload, identity", "0.291", "met"),
            ("  resident over cudaupload, identity", "0.200", "missed"),
            ("4 KiB, resident: P99.9", "9.9 us", "met"),
            ("  7 us of a thread that only spins: P99.9", "8.8 us", ""),
            ("64 B frames/s, resident, overlapping", "351234", "met"),
            ("64 B frames/s, launched, a round trip each", "64321", ""),
            ("a second resident element over a bare 4-byte doorbell", "1.05", "missed"),
            ("copy of 64 B", "0.95", "missed"),
            ("CPU time of a copied 1080p frame, gpumapsink, over cudaupload", "1.10", "missed"),
            ("P99 beside a full GPU, sm-share, launched", "not measured", ""),
            ("P99 beside a full GPU, sm-share, resident", "18.5 us", "met"),
            ("loop, launched: frames/s", "22170", "met"),
            ("loop, launched: over 50 us late", "2900.0", "missed"),
            ("loop, resident: frames/s", "19999", "missed"),
            ("loop, resident: jitter RMS", "1.9 us", "met"),
            ("loop, resident: over 50 us late", "1.0", "met")):
        line = the(lines, begin)
        assert figure in line and (verdict in line if verdict else "met" not in line.split(figure)[1]), line

with tempfile.TemporaryDirectory() as name:
    done = subprocess.run([RUN, "--quick", "--out", name], capture_output=True, text=True, env=os.environ)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    lines = table_of(name)
    for begin in ("4 KiB, three elements, launched, identity: P50", "64 B frames/s, launched, overlapping",
                  "  7 us of a thread that only spins: P99.9",
                  "copy of 4096 B", "loop, launched: jitter RMS", "loop, launched beside 8 busy processes: frames/s"):
        assert "not measured" not in the(lines, begin), lines
