#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the benchmark briefly, as given on the command line, and read what it wrote: does it run, and is it whole?"""
import json
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile(suffix=".json") as file:
    subprocess.run(sys.argv[1:] + ["--json", file.name], check=True)
    report = json.load(file)

(mode,) = report["modes"]
rows = {(row["path"], row["detail"]): row for row in mode["rows"]}
for size in ("64x64", "1920x1080"):
    for times in ("element", "to kernel done"):
        assert ("gpumapsink", f"{size} {times}") in rows, sorted(rows)
for row in rows.values():
    assert 0 < row["min_us"] <= row["median_us"] <= row["p90_us"] <= row["p99_us"], row
for path in mode["paths"]:
    if path["path"] != "cudaupload":
        stats = path["stats"]
        assert stats["transport"] and stats["zero-copy-frames"] == "0", path
        assert stats["copied-frames"] == stats["frames"], path
compared = any(path == "cudaupload" for path, _ in rows)
(target,) = report["targets"]
assert target["verdict"] == "waived" or (compared and not report["software"]), target
assert compared or any("waived" in why for why in mode["not_measured"]), mode["not_measured"]
