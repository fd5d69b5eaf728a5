// SPDX-License-Identifier: MIT
// The rows of `frame` and `bw`, drawn by gnuplot.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

constexpr int width = 900;  // as wide as a page of text shows a picture, so that letters keep their size
constexpr int above_and_below = 125, row_height = 24, head_height = 85;
// The first is of what the project adds.
constexpr std::array palette{"#0060c0", "#d55e00", "#009e73", "#9467bd", "#8c564b", "#d6408f",
                             "#606060", "#b8860b", "#10a0b0", "#7ab51d", "#c00000", "#000000"};

struct Series {
  std::string name;  ///< a path, or a path, a comma and a blank, and a variant of it: both have the path's colour
  std::vector<std::pair<double, double>> points{};  ///< bytes, and us or GB/s
};
struct Plot {
  std::string title;
  bool times = true;  ///< us, logarithmic; else GB/s
  std::vector<Series> series{};

  [[nodiscard]] Series& of(const std::string& name) {
    const auto found = std::find_if(series.begin(), series.end(), [&](const Series& one) { return one.name == name; });
    return found != series.end() ? *found : series.emplace_back(Series{.name = name});
  }
};

/// For gnuplot: a string in single quotes.
std::string literal(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'') made += c;
    made += c;
  }
  return made + "'";
}

/// Of one group of rows, over size: the median (of several thread counts the best), or the bandwidth of gpumap and of
/// the others (each thread count).
Plot plot_of(const nlohmann::json& rows, const std::string& detail, bool times) {
  Plot plot{.title = times ? "frame: one frame, " + detail + ": median" : "bw: bandwidth, " + detail, .times = times};
  for (const auto& row : rows) {
    const auto path = row.at("path").get<std::string>();
    const auto threads = row.at("threads").get<unsigned>();
    if (row.at("detail") != detail || (!times && (path.rfind("bar, ", 0) == 0 || !row.contains("gb_per_s")))) continue;
    auto& points = plot.of(!times && threads > 1 ? fmt::format("{}, {} threads", path, threads) : path).points;
    const auto bytes = row.at("bytes").get<double>();
    const auto value = row.at(times ? "median_us" : "gb_per_s").get<double>();
    if (points.empty() || points.back().first != bytes) {
      points.emplace_back(bytes, value);
    } else {
      points.back().second = std::min(points.back().second, value);
    }
  }
  return plot;
}

std::vector<Plot> plots_of(const nlohmann::json& report) {
  std::vector<Plot> plots;
  for (const auto& mode : report.at("modes")) {
    const bool times = mode.at("mode") == "frame";
    if (!times && mode.at("mode") != "bw") continue;
    const std::vector<const char*> groups =
        times ? std::vector{"copied, nothing", "copied, checksum", "in place, nothing", "in place, checksum"}
              : std::vector{"warm", "cold"};
    for (const char* detail : groups) plots.push_back(plot_of(mode.at("rows"), detail, times));
  }
  std::erase_if(plots, [](const Plot& plot) { return plot.series.empty(); });
  return plots;
}

/// "100 us", "1 ms": powers of ten, with steps between them where they are few.
std::string time_ticks(double least_us, double most_us) {
  const std::vector<double> factors = most_us < 8 * least_us     ? std::vector{1.0, 1.5, 2.0, 3.0, 5.0, 7.0}
                                      : most_us < 200 * least_us ? std::vector{1.0, 2.0, 5.0}
                                                                 : std::vector{1.0};
  std::string made;
  for (int power = static_cast<int>(std::floor(std::log10(least_us))); power <= std::log10(most_us); ++power) {
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      const auto [text, unit] = value < 1     ? std::pair(value * 1e3, "ns")
                                : value < 1e3 ? std::pair(value, "us")
                                : value < 1e6 ? std::pair(value / 1e3, "ms")
                                              : std::pair(value / 1e6, "s");
      made += fmt::format("{}'{:.4g} {}' {}", made.empty() ? "" : ", ", text, unit, value);
    }
  }
  return made;
}

/// A plot's data as named blocks, and the commands that draw them. A path has one colour in all panels of a picture.
std::string panel(const Plot& plot, const std::string& mark, int number, std::vector<std::string>& coloured) {
  constexpr double room = 1.2;  // beyond the outermost points
  std::string data;
  std::string lines;
  std::map<std::string, int> variants;
  std::pair<double, double> x{1e300, 0};
  std::pair<double, double> y{1e300, 0};
  for (const Series& series : plot.series) {
    const std::string path = series.name.substr(0, series.name.find(", "));
    auto colour = std::find(coloured.begin(), coloured.end(), path);
    if (colour == coloured.end()) colour = coloured.insert(coloured.end(), path);
    const std::string block = fmt::format("$d{}_{}", number, &series - plot.series.data());
    data += block + " << EOD\n";
    for (const auto& [bytes, value] : series.points) {
      data += fmt::format("{} {}\n", bytes, value);
      x = {std::min(x.first, bytes), std::max(x.second, bytes)};
      y = {std::min(y.first, value), std::max(y.second, value)};
    }
    data += "EOD\n";
    // What the project adds is drawn thick; a path's variants differ in their dashes.
    lines += fmt::format("{} {} with linespoints pt {} ps 0.7 lc rgb '{}' dt {} lw {} title {}",
                         lines.empty() ? "plot" : ",", block, &series - plot.series.data() + 4,
                         palette[static_cast<std::size_t>(colour - coloured.begin()) % palette.size()],
                         ++variants[path], path == "bar" ? 3.5 : 1.8, literal(series.name));
  }
  std::string axis = "unset logscale y\nset yrange [0:*]\nset ytics auto\nset ylabel 'GB/s'\n";
  if (plot.times && y.first > 0) {
    const double least = y.first / room;
    const double most = y.second * room;
    axis = fmt::format("set logscale y\nset yrange [{}:{}]\nset ytics ({})\nunset ylabel\n", least, most,
                       time_ticks(least, most));
  }
  return fmt::format("{}set title {} font ',16'\nset xrange [{}:{}]\n{}{}\n", data, literal(plot.title + mark),
                     x.first / room, x.second * room, axis, lines);
}

std::string script_for(const nlohmann::json& report, const std::string& file) {
  const bool software = report.at("software").get<bool>();
  const std::vector<Plot> plots = plots_of(report);
  std::size_t longest = 0;
  std::size_t names = 0;
  std::string panels;
  std::vector<std::string> coloured{"bar"};
  for (const Plot& plot : plots) {
    for (const Series& series : plot.series) longest = std::max(longest, series.name.size());
    names = std::max(names, plot.series.size());
    panels += panel(plot, software ? " (software)" : "", static_cast<int>(&plot - plots.data()), coloured);
  }
  // Room for the longest name, and for as many as there are: letters of this font are 9 pixels wide at most, on
  // average.
  const int legend_width = std::min(95 + 9 * static_cast<int>(longest), width / 2);
  const int panel_height = std::max(340, above_and_below + row_height * static_cast<int>(names));
  const int count = std::max(static_cast<int>(plots.size()), 1);
  const auto commit = report.at("commit").get<std::string>();
  std::string title =
      fmt::format("gpumap-bench{}{}\n{}, {}\n{}", commit.empty() ? "" : ", commit " + commit.substr(0, 12),
                  software ? " (software: no figures of a GPU)" : "", report.at("device").get<std::string>(),
                  report.at("cpu").get<std::string>(), report.at("driver").get<std::string>());
  std::replace(title.begin(), title.end(), '`', '\'');  // gnuplot would run it
  return fmt::format(
      "set terminal svg size {},{} noenhanced font 'sans-serif,15' background '#ffffff'\nset output {}\n"
      "set multiplot layout {},1 title {} font ',15'\nset grid\nset logscale x 2\nset format y '%g'\n"
      "set xtics ('64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304, '64 MiB' 67108864, "
      "'1 GiB' 1073741824)\nset lmargin at screen 0.1\nset rmargin at screen {}\n"
      "set key at graph 1.02, graph 1 left top vertical Left reverse maxcols 1 samplen 3\n{}unset multiplot\nset "
      "output\n",
      width, head_height + panel_height * count, literal(file), count, nlohmann::json(title).dump(),
      1 - legend_width / double{width}, panels);
}

}  // namespace

void write_svg(const nlohmann::json& report, const std::string& file) {
  // A gnuplot that is missing or stops early ends a write with a signal otherwise.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string script = script_for(report, file);
  FILE* pipe = popen("command -v gnuplot >/dev/null || exit 127; exec gnuplot", "w");
  if (pipe == nullptr) throw std::runtime_error(file + ": cannot start gnuplot");
  const bool written = std::fwrite(script.data(), 1, script.size(), pipe) == script.size();
  const int status = pclose(pipe);
  constexpr int missing = 127;
  if (WIFEXITED(status) && WEXITSTATUS(status) == missing) {
    throw std::runtime_error(file +
                             ": no gnuplot to draw it with: sudo apt-get install gnuplot-nox, then --from "
                             "with the file of --json draws what was measured");
  }
  if (!written || status != 0) throw std::runtime_error(file + ": gnuplot failed, see above");
}

}  // namespace bench
