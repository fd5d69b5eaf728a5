#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run launch-bench, as given on the command line, and read what it wrote: does it run, and is it whole?"""
import json
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run(sys.argv[1:] + ["--json", file.name], check=True)
    report = json.load(file)

cuda = "calls" in report
assert len(report["ways"]) == (5 if cuda else 2), report["ways"]
for row in report["ways"]:
    for time in (row["launched"], row["seen"]):
        assert 0 < time["min_us"] <= time["median_us"] <= time["p99_us"] <= time["p999_us"] <= time["max_us"], row
    assert row["launched"]["min_us"] <= row["seen"]["min_us"], row
if cuda:
    assert len(report["calls"]) == 4 and len(report["beside"]) >= 5, report
assert report["device"] and report["cpu"] and report["frames"] >= 20, report
