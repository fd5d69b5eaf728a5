#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run kernel-bench, as given on the command line, and read what it wrote: does it run, and is it whole?"""
import json
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run(sys.argv[1:] + ["--json", file.name], check=True)
    report = json.load(file)

beginnings = ["convert, 1080p NV12 to RGBA", "convert, 1080p NV12 to planar", "convert, 1080p NV12 to 224x224",
              "spectrum, ", "FFT, 64 x 1024", "FFT, 1 x", "three functions"]
assert len(report["rows"]) == len(beginnings), report["rows"]
for row, beginning in zip(report["rows"], beginnings):
    assert row["what"].startswith(beginning), row
    for time in (row["time"], row["beside_time"]):
        assert 0 < time["min_us"] <= time["median_us"] <= time["p90_us"], row
    assert abs(row["ratio"] - row["time"]["median_us"] / row["beside_time"]["median_us"]) < 1e-6 * row["ratio"], row
    assert row["within"] == (row["ratio"] <= row["at_most"]), row
assert report["device"] and report["cpu"], report
