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

paths = {"bare, one thread", "bare, two threads", "pipeline", "pipeline, stamps"}
if report["backend"] == "cuda":
    paths.add("pipeline, resident")
for kernel in ("nothing", "identity"):
    results = {result["path"]: result for result in report["results"] if result["kernel"] == kernel}
    assert results.keys() == paths, f"{kernel}: {sorted(results)}"
    for path, result in results.items():
        assert 0 < result["min_us"] <= result["median_us"] <= result["p90_us"] <= result["p99_us"], (path, result)
        assert all(stage["median_us"] >= 0 for stage in result["stages"]), (path, result)
    sent = report["frames"] + report["warmup"]
    assert results["pipeline"]["zero_copy_frames"] == sent, results["pipeline"]
assert len(report["differences"]) == 4, report["differences"]
assert report["device"] and report["cpu"], report
