#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run link-bench, as given on the command line, and read what it wrote: is it whole, and is nobody woken twice?

That no frame is missing or wrong link-bench sees to by itself: then it fails.
"""
import json
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run(sys.argv[1:] + ["--json", file.name], check=True)
    report = json.load(file)


def check_spread(each):
    assert 0 < each["min"] <= each["median"] <= each["max"], each


for name in ("one_process_per_s", "two_processes_per_s", "ratio"):
    check_spread(report["rate"][name])
assert [row["consumers"] for row in report["cost"]] == [1, 2, 4], report["cost"]
for row in report["cost"]:
    check_spread(row["publish_median_ns_of_rounds"])
    for time in (row["acquire"], row["publish"], row["both"]):
        assert 0 < time["min_us"] <= time["median_us"] <= time["p99_us"], row
    assert row["wakes_a_frame"] <= row["consumers"], row
for name in ("bare", "consumer_sleeps", "consumer_spins"):
    check_spread(report["copy"][name]["gb_per_s"])
    check_spread(report["copy"][name]["over_bare"])
assert report["copy"]["bytes"] == 3110400 and report["copy"]["store_kernel"], report["copy"]
for row in report["wakes"]:
    # One for each sleeper at most; how many sleep is the scheduler's.
    assert 0 < row["wakes_a_frame"] <= row["consumers"], row
assert report["cpu"] and report["cores"] >= 1, report
