// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

constexpr int width = 900;  // as wide as a page of text shows a picture, so that letters keep their size
constexpr int left_margin = 90;
constexpr int above = 50, below = 75;  // of a panel, for its title and its x axis
constexpr int row_height = 24;         // of a legend
constexpr int head_height = 85;
// The first is of what the project adds.
constexpr std::array palette{"#0060c0", "#d55e00", "#009e73", "#9467bd", "#8c564b", "#d6408f",
                             "#606060", "#b8860b", "#10a0b0", "#7ab51d", "#c00000", "#000000"};

/// For gnuplot: a string in single quotes.
std::string literal(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'') made += c;
    made += c;
  }
  return made + "'";
}

/// "bar" of "bar, 2 threads", of "bar, auto" and of "BAR, 4-byte doorbell".
std::string path_of(const std::string& series) {
  const std::string path = series.substr(0, series.find(", "));
  return path == "BAR" ? "bar" : path;
}

/// A path has one colour in all panels of a picture: the first panel that shows it gives it one.
class Colours {
 public:
  const char* of(const std::string& path) {
    auto found = std::find(paths_.begin(), paths_.end(), path);
    if (found == paths_.end()) found = paths_.insert(paths_.end(), path);
    return palette[static_cast<std::size_t>(found - paths_.begin()) % palette.size()];
  }

 private:
  std::vector<std::string> paths_{"bar"};
};

/// The series of that name, new where there is none.
Series& series_of(Plot& plot, const std::string& name) {
  const auto found =
      std::find_if(plot.series.begin(), plot.series.end(), [&](const Series& one) { return one.name == name; });
  return found != plot.series.end() ? *found : plot.series.emplace_back(Series{.name = name, .points = {}});
}

/// Median over size, for one group of rows; of several thread counts the best.
Plot frame_plot(const nlohmann::json& rows, const std::string& detail) {
  Plot plot{.title = "one frame, " + detail, .x_label = "bytes", .y_label = "us, median"};
  for (const auto& row : rows) {
    if (row.at("detail") != detail) continue;
    auto& points = series_of(plot, row.at("path")).points;
    const auto bytes = row.at("bytes").get<double>();
    const auto median = row.at("median_us").get<double>();
    if (points.empty() || points.back().first != bytes) {
      points.emplace_back(bytes, median);
    } else {
      points.back().second = std::min(points.back().second, median);
    }
  }
  return plot;
}

/// Bandwidth over size, of gpumap and of the others.
Plot bandwidth_plot(const nlohmann::json& rows, const char* detail, const char* other) {
  Plot plot{.title = fmt::format("bandwidth, {}", detail), .x_label = "bytes", .y_label = "GB/s", .log_y = false};
  for (const auto& row : rows) {
    if ((row.at("detail") != detail && row.at("detail") != other) || !row.contains("gb_per_s")) continue;
    const auto path = row.at("path").get<std::string>();
    if (path.rfind("bar, ", 0) == 0 || path == "CPU reads of the BAR") continue;
    const auto threads = row.at("threads").get<unsigned>();
    series_of(plot, threads > 1 ? fmt::format("{}, {} threads", path, threads) : path)
        .points.emplace_back(row.at("bytes").get<double>(), row.at("gb_per_s").get<double>());
  }
  return plot;
}

/// Of what no row has.
Plot to_plot(const nlohmann::json& from) {
  Plot plot{.title = from.at("title"),
            .x_label = from.at("x_label"),
            .y_label = from.at("y_label"),
            .log_x = from.at("log_x"),
            .log_y = from.at("log_y")};
  for (const auto& one : from.at("series")) plot.series.push_back({.name = one.at("name"), .points = one.at("points")});
  return plot;
}

std::vector<Plot> plots_of(const nlohmann::json& mode) {
  const auto& rows = mode.at("rows");
  std::vector<Plot> plots;
  if (mode.at("mode") == "frame") {
    for (const char* detail : {"copied, nothing", "copied, checksum", "in place, nothing", "in place, checksum"}) {
      plots.push_back(frame_plot(rows, detail));
    }
  } else if (mode.at("mode") == "bw") {
    plots = {bandwidth_plot(rows, "warm", "page-locked source"), bandwidth_plot(rows, "cold", "read back")};
  } else {
    for (const auto& plot : mode.value("plots", nlohmann::json::array())) plots.push_back(to_plot(plot));
  }
  std::erase_if(plots, [](const Plot& plot) { return plot.series.empty(); });
  return plots;
}

struct Range {
  double least = std::numeric_limits<double>::max();
  double most = 0;
};
/// Of one of the two coordinates of all points.
template <typename Coordinate>
Range range_of(const Plot& plot, Coordinate coordinate) {
  Range range;
  for (const Series& series : plot.series) {
    for (const auto& point : series.points) {
      range.least = std::min(range.least, point.*coordinate);
      range.most = std::max(range.most, point.*coordinate);
    }
  }
  return range;
}
using Point = std::pair<double, double>;

/// "64 B", "4 KiB", "1 MiB", as far apart as leaves room for each.
std::string byte_ticks(const Range& bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr int most_ticks = 6;
  const int first = std::ilogb(std::max(bytes.least, 1.0));
  const int last = std::ilogb(std::max(bytes.most, 1.0));
  const int step = std::max((last - first + most_ticks - 1) / most_ticks, 1);
  std::string made;
  for (int power = first; power <= last; power += step) {
    const auto unit = std::min(static_cast<std::size_t>(power / 10), units.size() - 1);
    made += fmt::format("{}'{:.0f} {}' {:.0f}", made.empty() ? "" : ", ",
                        std::exp2(power - 10 * static_cast<int>(unit)), units[unit], std::exp2(power));
  }
  return made;
}

/// "100 us", "1 ms": powers of ten, with steps between them where they are few.
std::string time_ticks(const Range& us) {
  const std::vector<double> factors = us.most < 8 * us.least     ? std::vector{1.0, 1.5, 2.0, 3.0, 5.0, 7.0}
                                      : us.most < 200 * us.least ? std::vector{1.0, 2.0, 5.0}
                                                                 : std::vector{1.0};
  std::string made;
  for (int power = static_cast<int>(std::floor(std::log10(us.least))); power <= std::log10(us.most); ++power) {
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

/// A plot's data as named blocks, and the commands that draw them.
class Panel {
 public:
  /// In pixels, from the top of the canvas.
  struct Place {
    int number, top, bottom, legend_width, canvas_height;
  };
  Panel(Plot plot, std::string title, const Place& place, Colours& colours)
      : plot_(std::move(plot)), title_(std::move(title)), place_(place), colours_(colours) {}

  std::string draw() {
    add("reset\nset grid\nset title {} font ',16'\nset xlabel {} offset 0,0.4\n"
        "set key at graph 1.02, graph 1 left top vertical Left reverse maxcols 1 samplen 3\n",
        literal(title_), literal(plot_.x_label));
    const Place& at = place_;
    add("set lmargin at screen {}\nset rmargin at screen {}\nset tmargin at screen {}\nset bmargin at screen {}\n",
        left_margin / double{width}, 1 - at.legend_width / double{width},
        1 - (at.top + above) / double(at.canvas_height), 1 - (at.bottom - below) / double(at.canvas_height));
    set_x_axis();
    set_y_axis();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) add_data(i);
    std::string separator = "plot ";
    std::map<std::string, int> variants;
    for (std::size_t i = 0; i < plot_.series.size(); ++i) {
      const std::string path = path_of(plot_.series[i].name);
      constexpr std::size_t most_marks = 30;
      const bool marked = plot_.series[i].points.size() <= most_marks;
      // What the project adds is drawn thick; a path's variants differ in their dashes.
      add("{}{} with {} lc rgb '{}' dt {} lw {} title {}", separator, block(i),
          marked ? fmt::format("linespoints pt {} ps 0.7", i + 4) : "lines", colours_.of(path), ++variants[path],
          path == "bar" ? 3.5 : 1.8, literal(plot_.series[i].name));
      separator = ", ";
    }
    add("\n");
    return std::move(script_);
  }

 private:
  static constexpr double room = 1.2;  // beyond the outermost points

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    script_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }
  [[nodiscard]] std::string block(std::size_t i) const { return fmt::format("$d{}_{}", place_.number, i); }

  void set_x_axis() {
    if (!plot_.log_x) return;
    const Range x = range_of(plot_, &Point::first);
    add("set logscale x 2\nset xrange [{}:{}]\n", x.least / room, x.most * room);
    if (plot_.x_label == "bytes") add("set xtics ({})\n", byte_ticks(x));
  }

  void set_y_axis() {
    const bool times = plot_.log_y && plot_.y_label == "us, median";
    add("set ylabel {}\nset format y '%g'\n", literal(times ? "median" : plot_.y_label));
    const Range y = range_of(plot_, &Point::second);
    if (plot_.log_y && y.least > 0) {
      add("set logscale y\nset yrange [{}:{}]\n", y.least / room, y.most * room);
      if (times) add("set ytics ({})\n", time_ticks({y.least / room, y.most * room}));
    } else {
      add("set yrange [0:*]\n");
    }
  }

  void add_data(std::size_t i) {
    add("{} << EOD\n", block(i));
    for (const auto& [x, y] : plot_.series[i].points) add("{} {}\n", x, y);
    add("EOD\n");
  }

  Plot plot_;
  std::string title_;
  Place place_;
  Colours& colours_;
  std::string script_;
};

std::string script_for(const nlohmann::json& report, const std::string& file) {
  const bool software = report.at("software").get<bool>();
  const std::string mark = software ? " (software)" : "";
  std::vector<std::pair<std::string, Plot>> plots;
  std::size_t longest = 0;
  std::size_t names = 0;
  for (const auto& mode : report.at("modes")) {
    for (Plot& plot : plots_of(mode)) {
      for (const Series& series : plot.series) longest = std::max(longest, series.name.size());
      names = std::max(names, plot.series.size());
      plots.emplace_back(mode.at("mode").get<std::string>() + ": " + plot.title + mark, std::move(plot));
    }
  }
  // Room for the longest name, and for as many as there are: letters of this font are 9 pixels wide at most, on
  // average.
  const int legend_width = std::min(95 + 9 * static_cast<int>(longest), width / 2);
  const int panel_height = std::max(340, above + below + row_height * static_cast<int>(names));
  const int canvas_height = head_height + panel_height * std::max(static_cast<int>(plots.size()), 1);
  Colours colours;
  std::string panels;
  int count = 0;
  int top = head_height;
  for (auto& [title, plot] : plots) {
    const Panel::Place place{count++, top, top + panel_height, legend_width, canvas_height};
    panels += Panel(std::move(plot), title, place, colours).draw();
    top += panel_height;
  }
  const auto commit = report.at("commit").get<std::string>();
  const std::string title =
      fmt::format("gpumap-bench{}{}\n{}, {}\n{}", commit.empty() ? "" : ", commit " + commit.substr(0, 12),
                  software ? " (software: no figures of a GPU)" : "", report.at("device").get<std::string>(),
                  report.at("cpu").get<std::string>(), report.at("driver").get<std::string>());
  std::string escaped = title;  // in double quotes, for the new line
  for (std::size_t at = 0; (at = escaped.find_first_of("\\\"\n`", at)) != std::string::npos; at += 2) {
    if (escaped[at] == '\n') {
      escaped.replace(at, 1, "\\n");
    } else {
      escaped.insert(at, 1, '\\');
    }
  }
  return fmt::format(
      "set terminal svg size {},{} noenhanced font 'sans-serif,15' background '#ffffff'\nset output {}\n"
      "set multiplot title \"{}\" font ',15'\n{}unset multiplot\nset output\n",
      width, canvas_height, literal(file), escaped, panels);
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
