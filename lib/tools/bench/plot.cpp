// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "bench.hpp"

namespace bench {
namespace {

constexpr int columns = 2;
constexpr int cell_width = 760;
constexpr int cell_height = 470;
constexpr int head_height = 60;
constexpr std::array colours{"#0060c0", "#d55e00", "#009e73", "#9467bd", "#8c564b",
                             "#d6408f", "#606060", "#8a8a00", "#10a0b0", "#000000"};

/// For gnuplot: a string in single quotes.
std::string literal(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'') made += c;
    made += c;
  }
  return made + "'";
}

/// A plot's data as named blocks, and the commands that draw them.
class Panel {
 public:
  Panel(const nlohmann::json& plot, std::string title, int number)
      : plot_(plot), title_(std::move(title)), number_(number) {}

  std::string draw() {
    add("reset\nset grid\nset title {}\nset xlabel {}\nset ylabel {}\n", literal(title_),
        literal(plot_.at("x_label").get<std::string>()), literal(plot_.at("y_label").get<std::string>()));
    add("set key at graph 1.02, graph 1 left top vertical Left reverse samplen 2 font ',11'\nset format y '%g'\n"
        "set lmargin 9\nset rmargin 28\n");
    set_line_axes();
    if (plot_.at("log_y").get<bool>()) {
      add("set logscale y\n");
    } else {
      add("set yrange [0:*]\n");
    }
    const auto& series = plot_.at("series");
    for (std::size_t i = 0; i < series.size(); ++i) add_data(series, i);
    std::string separator = "plot ";
    for (std::size_t i = 0; i < series.size(); ++i) {
      const auto name = series[i].at("name").get<std::string>();
      // What the project adds is drawn thick.
      const bool ours = name == "bar" || name.rfind("bar,", 0) == 0 || name.rfind("BAR,", 0) == 0;
      add("{}{} with {} lc rgb '{}' title {}", separator, block(i),
          fmt::format("linespoints pt {} ps 0.6 lw {}", i + 4, ours ? 3.0 : 1.2), colours[i % colours.size()],
          literal(name));
      separator = ", ";
    }
    add("\n");
    return std::move(script_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    script_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }
  [[nodiscard]] std::string block(std::size_t i) const { return fmt::format("$d{}_{}", number_, i); }

  void set_line_axes() {
    if (!plot_.at("log_x").get<bool>()) return;
    add("set logscale x 2\n");
    if (plot_.at("x_label") == "bytes") add("set format x '%.0b %BB'\nset xtics 1,4 rotate by -35 font ',10'\n");
  }

  void add_data(const nlohmann::json& series, std::size_t i) {
    add("{} << EOD\n", block(i));
    for (const auto& point : series[i].at("points")) {
      add("{} {}\n", point.at(0).get<double>(), point.at(1).get<double>());
    }
    add("EOD\n");
  }

  const nlohmann::json& plot_;
  std::string title_;
  int number_;
  std::string script_;
};

std::string script_for(const nlohmann::json& report, const std::string& file) {
  const bool software = report.at("software").get<bool>();
  const std::string mark = software ? "  *software*" : "";
  std::string panels;
  int count = 0;
  for (const auto& mode : report.at("modes")) {
    for (const auto& plot : mode.at("plots")) {
      if (plot.at("series").empty()) continue;
      panels +=
          Panel(plot, mode.at("mode").get<std::string>() + ": " + plot.at("title").get<std::string>() + mark, count)
              .draw();
      ++count;
    }
  }
  const int rows = std::max((count + columns - 1) / columns, 1);
  const auto commit = report.at("commit").get<std::string>();
  const std::string title =
      fmt::format("gpumap-bench: {}, {}{}{}\n{}", report.at("device").get<std::string>(),
                  report.at("driver").get<std::string>(), commit.empty() ? "" : ", commit " + commit.substr(0, 12),
                  software ? "  *software: these are no figures of a GPU*" : "", report.at("cpu").get<std::string>());
  std::string escaped = title;  // in double quotes, for the new line
  for (std::size_t at = 0; (at = escaped.find_first_of("\\\"\n`", at)) != std::string::npos; at += 2) {
    if (escaped[at] == '\n') {
      escaped.replace(at, 1, "\\n");
    } else {
      escaped.insert(at, 1, '\\');
    }
  }
  return fmt::format(
      "set terminal svg size {},{} noenhanced font 'sans-serif,13' background '#ffffff'\nset output {}\n"
      "set multiplot layout {},{} title \"{}\"\n{}unset multiplot\nset output\n",
      columns * cell_width, rows * cell_height + head_height, literal(file), rows, columns, escaped, panels);
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
