#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run link-rivals, as given on the command line, and read what it wrote: of gpumap's pair nothing tears or hangs."""
import json
import subprocess
import sys
import tempfile

FRAMES = 50
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run(sys.argv[1:] + ["--frames", str(FRAMES), "--json", file.name], check=True)
    report = json.load(file)

ours = [row for row in report["rows"] if row["pair"] == "gpumap"]
assert [row["plot"] for row in ours] == ["hand-over", "victim killed", "victim stopped", "producer killed"], ours
for row in report["rows"]:
    if row["plot"] != "hand-over":
        continue
    assert 0 < row["median_us"] <= row["p99_us"] <= row["p999_us"] <= row["max_us"], row
    assert sum(row["below_us"].values()) == FRAMES and row["torn"] == 0, row
    assert row["p999_us"] < max(map(int, row["below_us"])), row
deaths = [row for row in report["rows"] if row["plot"] != "hand-over"]
for row in deaths:
    assert row["frames_seen"] > 0 and row["frames_seen"] + row["lost"] <= row["frames_made"] + 20, row
    assert row["longest_gap_ms"] > 0 and row["ms_without_frames"] >= 0, row
for row in deaths:
    if row["pair"] != "gpumap":
        continue
    assert row["torn"] == 0 and row["hangs"] == 0 and row["restarts"] == 0, row
assert report["cpu"] and report["gstreamer"], report
