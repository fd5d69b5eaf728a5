#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Look at what gpumap-latency left in a folder: do figures, frames and page say the same, and can they be true? The page
is opened in headless Chromium where there is one; without, the last part skips and says so."""
import csv
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STAGES = ["hold", "write", "publish", "queue", "dispatch", "start", "kernel", "notice", "release"]
TRANSPORTS = {"bar", "pinned", "zero-copy", "pageable"}
FIGURES = ["min", "p50", "p90", "p99", "p999", "max"]

# Runs in a copy of the page: what a reader sees, as text that --dump-dom brings out.
PROBE = """<pre id="probe"></pre><script>
const seen = [...document.querySelectorAll("svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll("rect,circle")].map(mark => mark.getBoundingClientRect());
  return {kind: svg.getAttribute("class"), width: box.width, height: box.height,
          marks: marks.filter(mark => mark.width > 0 || mark.height > 0).length,
          outside: marks.filter(mark => mark.right < box.left - 1 || mark.left > box.right + 1 ||
                                        mark.bottom < box.top - 1 || mark.top > box.bottom + 1).length};
});
const loaded = performance.getEntriesByType("resource").map(entry => entry.name);
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
document.getElementById("probe").textContent = JSON.stringify({seen, loaded, wide});
</script>"""


def check_times(case):
    times, frames = case["times"], case["frames"]
    for name, time in times.items():
        assert time["count"] <= frames, (name, time, frames)
        values = [time[figure] for figure in FIGURES]
        assert values == sorted(values) and values[0] >= 0, (name, time)
        assert time["count"] == 0 or time["min"] <= time["mean"] <= time["max"], (name, time)
    whole = times["whole"]
    assert whole["count"] == frames and whole["mean"] > 0, case
    total = sum(times[stage]["mean"] * times[stage]["count"] for stage in STAGES) / frames
    assert abs(total - whole["mean"]) < 1 + 1e-6 * total, (total, whole)
    assert times["result"]["mean"] <= times["through"]["mean"] <= whole["mean"], times
    for stage in ("write", "publish", "queue", "notice", "release"):
        assert times[stage]["count"] == frames, (stage, times[stage])


def check_case(case, count):
    assert not case["error"], case["error"]
    assert case["frames"] == count and case["dropped"] == 0 and case["not_looked_at"] == 0, case
    assert case["used"] == case["transport"] or case["transport"] == "upload" and case["used"] in TRANSPORTS, case
    assert case["zero_copy_frames"] >= count and case["copied_frames"] == 0, case
    assert case["cpu_ns_a_frame"] > 0 and case["seconds"] > 0, case
    check_times(case)
    for key in ("typical", "slow"):
        whole = sum(case[key].values())
        assert case["times"]["whole"]["min"] * 0.99 <= whole <= case["times"]["whole"]["max"] * 1.01, (key, case)
    slowest = [outlier["time_ns"] for outlier in case["outliers"]]
    assert slowest == sorted(slowest, reverse=True) and slowest[0] == case["times"]["through"]["max"], slowest


def check_histograms(folder, report):
    """A file for each case with figures, as HdrHistogram's own reader takes it."""
    measured = [case for case in report["cases"] if case["frames"] > 0]
    files = sorted(path.name for path in folder.glob("*.hgrm"))
    names = sorted(f"{case['frame']}-{case['transport']}-{case['fence']}".rstrip("-") + ".hgrm" for case in measured)
    assert files == names, (files, names)
    for case, name in zip(measured, (f"{case['frame']}-{case['transport']}-{case['fence']}".rstrip("-") for case in measured)):
        times = case["times"]["through"]
        assert sum(count for _, count in case["histogram"]) == times["count"], name
        lines = (folder / f"{name}.hgrm").read_text(encoding="ascii").splitlines()
        assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"] and lines[1] == "", lines[:2]
        assert int(lines[-4].split()[2]) == times["count"] and lines[-3].startswith("#[Mean    ="), lines[-4:]
        assert abs(float(lines[-4].split()[0]) - times["max"] / 1e3) < 0.001, (lines[-4], times)


def check_csv(path, report):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    measured = [case for case in report["cases"] if case["frames"] > 0]
    assert len(rows) == sum(case["frames"] for case in measured), len(rows)
    for case in measured:
        mine = [row for row in rows if (row["frame"], row["transport"]) == (case["frame"], case["transport"])]
        assert len(mine) == case["frames"], case["transport"]
        whole = [int(row["whole_ns"]) for row in mine]
        assert max(whole) == case["times"]["whole"]["max"] and min(whole) == case["times"]["whole"]["min"]
        for row in mine:
            assert int(row["bytes"]) == case["bytes"], row
            assert int(row["whole_ns"]) == sum(int(row[f"{stage}_ns"] or 0) for stage in STAGES), row
            assert int(row["released_at_ns"]) - int(row["acquired_at_ns"]) == int(row["whole_ns"]), row


def short_time(ns):
    for unit, size in ("ns", 1), ("us", 1e3), ("ms", 1e6):
        if ns < 999.5 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e9:.4g} s"


class Cells(html.parser.HTMLParser):
    """Figures of the tables, by case, row and column; the text of the probe."""

    def __init__(self):
        super().__init__()
        self.figures, self.probe, self.where = {}, "", None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "td" and "data-case" in attributes:
            self.where = (int(attributes["data-case"]), attributes["data-row"], attributes["data-column"])
        elif attributes.get("id") == "probe":
            self.where = "probe"

    def handle_data(self, data):
        if self.where == "probe":
            self.probe += data
        elif self.where:
            self.figures[self.where] = self.figures.get(self.where, "") + data

    def handle_endtag(self, tag):
        self.where = None


def check_cells(cells, report):
    expected = 0
    for number, case in enumerate(report["cases"]):
        for row, time in case["times"].items():
            for column in ("p50", "p90", "p99", "p999", "max", "mean"):
                shown = cells.figures.get((number, row, column))
                if case["frames"] == 0 or time["count"] == 0:
                    assert shown is None, (number, row, shown)
                    continue
                expected += 1
                assert shown == short_time(time[column]), (number, row, column, shown, time[column])
    assert expected == len(cells.figures) > 0, (expected, len(cells.figures))


def look(browser, page, folder, size, options=()):
    """Chromium's DOM of the page once it is laid out, and what it had to say."""
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
         f"--user-data-dir={folder}/profile", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND",
         *options, page.as_uri()],
        capture_output=True, text=True, timeout=100, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    return done.stdout


def check_in_browser(browser, page, report, folder):
    source = page.read_text(encoding="utf-8")
    probed = folder / "probed.html"
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(source), "the page says that it loads nothing"
    probed.write_text(policy.sub("", source).replace("</body>", PROBE + "</body>"), encoding="utf-8")
    for size in ("1200,900", "390,800"):
        cells = Cells()
        cells.feed(look(browser, probed, folder, size, ["--dump-dom"]))
        check_cells(cells, report)
        probe = json.loads(cells.probe)
        sizes = {case["frame"] for case in report["cases"]}
        for kind, each in (("bars", 2), ("histograms", 1), ("timeline", 1)):
            drawn = [svg for svg in probe["seen"] if svg["kind"] == kind]
            assert len(drawn) == each * len(sizes), (size, kind, drawn)
            for svg in drawn:
                assert svg["width"] > 300 and svg["height"] > 40 and svg["marks"] > 0, (size, svg)
                assert svg["outside"] == 0, (size, svg)
        assert probe["loaded"] == [], probe["loaded"]
        assert not probe["wide"], f"at {size} the page is wider than the window"
    # The page itself, with its policy: no word on the console.
    picture = folder / "page.png"
    look(browser, page, folder, "1200,3000", [f"--screenshot={picture}"])
    assert picture.stat().st_size > 50_000, picture.stat().st_size


def main():
    folder = pathlib.Path(sys.argv[1])
    count = int(sys.argv[2])
    report = json.loads((folder / "latency.json").read_text(encoding="utf-8"))
    assert report["machine"]["device"] and report["stopped"] == "", report
    for case in report["cases"]:
        if case["rival"] and case["not_here"]:
            assert "cudaupload" in case["not_here"], case
        else:
            check_case(case, count)
    assert {case["transport"] for case in report["cases"]} == TRANSPORTS | {"upload", "cudaupload"}
    check_csv(folder / "latency.csv", report)
    check_histograms(folder / "hgrm", report)
    page = folder / "latency.html"
    source = page.read_text(encoding="utf-8")
    assert "://" not in source and "<script" not in source, "the page needs nothing from anywhere"
    cells = Cells()
    cells.feed(source)
    check_cells(cells, report)
    for case in report["cases"]:
        assert not case["not_here"] or case["not_here"] in source, case["not_here"]

    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser = next((found for found in map(shutil.which, names) if found), None)
    if browser is None:
        print(f"no {', '.join(names)}: nobody looked at the page (examples/install-deps --tests installs one)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        check_in_browser(browser, page, report, pathlib.Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
