// SPDX-License-Identifier: MIT
// One HTML file: no script, no font, no picture from anywhere, which its content security policy says as well. Charts
// are SVG that stands in it, in colours of its CSS variables, which follow the light or the dark scheme.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "gst/tools/latency/report_page.hpp"

namespace latency {

std::string escape(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr std::array<std::string_view, special.size()> written{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string made;
  for (const char c : text) {
    // Of control characters HTML takes these two.
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') continue;
    const std::size_t at = special.find(c);
    made += at == std::string_view::npos ? std::string_view(&c, 1) : written[at];
  }
  return made;
}

std::vector<Bin> bins_of(const Json& one) {
  std::vector<Bin> bins;
  constexpr std::uint32_t fine_bits = 3;
  for (const Json& count : one.at("histogram")) {
    const auto time = count.at(0).get<std::uint64_t>();
    const auto bits = static_cast<std::uint32_t>(std::bit_width(time));
    const std::uint32_t shift = bits > fine_bits + 1 ? bits - fine_bits - 1 : 0;
    const auto from = static_cast<std::int64_t>(time >> shift << shift);
    if (bins.empty() || bins.back().from_ns != from) {
      bins.push_back({.from_ns = from, .to_ns = from + (std::int64_t{1} << shift)});
    }
    bins.back().frames += count.at(1).get<std::uint64_t>();
  }
  return bins;
}

namespace {

using Cases = std::vector<const Json*>;

constexpr double width = 760;
constexpr double gutter = 130;  // of names and of the y axis

/// 1, 2 or 5 times a power of ten, so that about five fit.
double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

/// 1, 2 and 5 times powers of ten between two powers of ten; of many powers these alone.
std::vector<double> ticks_between(double low, double high) {
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(low)); power <= high; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if ((factor == 1 || high - low < 2.5) && at >= low && at <= high) ticks.push_back(factor * std::pow(10, power));
    }
  }
  return ticks;
}

/// A drawing under construction.
class Drawing {
 public:
  Drawing(std::string kind, std::string title, double height)
      : kind_(std::move(kind)), title_(std::move(title)), height_(height) {}

  void line(double x1, double y1, double x2, double y2, std::string_view css) {
    add(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", css, x1, y1, x2, y2);
  }
  void text(double x, double y, std::string_view text, std::string_view css = "") {
    add(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)", css, x, y, escape(text));
  }
  void box(double x, double y, double w, double h, std::string_view colour, std::string_view hint) {
    add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}"><title>{}</title></rect>)", x, y, w, h,
        colour, escape(hint));
  }
  void dot(double x, double y, std::string_view colour, std::string_view hint) {
    add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.8" fill="{}"><title>{}</title></circle>)", x, y, colour, escape(hint));
  }
  /// Times from 0 at `left` to `most` at `right`, with their lines from `top` to `bottom`.
  void time_axis(double left, double right, double most, double top, double bottom) {
    for (int tick = 0; tick * step_for(most) <= most * 1.0001; ++tick) {
      const double time = tick * step_for(most);
      const double x = left + time / most * (right - left);
      line(x, top, x, bottom, "grid");
      text(x, bottom + 18, time == 0 ? "0" : short_time(time), "middle");
    }
  }
  [[nodiscard]] std::string take() {
    return fmt::format(
        "<figure><figcaption>{0}</figcaption><div class=\"scroll\"><svg class=\"{1}\" role=\"img\" aria-label=\"{0}\" "
        "viewBox=\"0 0 {2:.0f} {3:.0f}\">{4}</svg></div></figure>\n",
        escape(title_), kind_, width, height_, body_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Arguments>(arguments)...);
    body_ += '\n';
  }
  std::string kind_, title_, body_;
  double height_;
};

std::string hint_of(const Json& one, const Json& outlier) {
  std::string made =
      fmt::format("{}: {} in round {}, frame {}", title_of(one), short_time(outlier.at("time_ns").get<double>()),
                  outlier.at("round").get<unsigned>(), outlier.at("sequence").get<std::uint64_t>());
  for (const auto& [stage, time] : outlier.at("stages").items()) {
    made += fmt::format("\n  {} {}", stage, short_time(time.get<double>()));
  }
  for (const Json& event : outlier.at("near")) made += "\n" + event.at("text").get<std::string>();
  if (outlier.at("near").empty()) made += "\nnothing seen beside it";
  return made;
}

std::string stage_colour(std::string_view stage) {
  const auto at = std::find(row_names.begin(), row_names.end(), stage);
  return fmt::format("var(--stage{})", at - row_names.begin());
}

std::string case_colour(const Json& one) {
  // A report of two processes has no transport but bar: the next one's colour is free.
  if (processes_of(one) == 2) return "var(--case1)";
  std::vector<std::string> known = transport_names();
  known.emplace_back(upload_name);
  known.emplace_back(rival_name);
  const auto at = std::find(known.begin(), known.end(), one.at("transport").get<std::string>());
  // A kernel that stays has another colour than the same case without.
  constexpr std::ptrdiff_t colours = 7;
  return fmt::format("var(--case{})", (at - known.begin() + (one.value("mode", "") == "resident" ? 3 : 0)) % colours);
}

/// What most likely held up that frame: "drop", "context switch", … or "nothing seen".
std::string cause_of(const Json& outlier) {
  // What explains more goes first: a frame before it was dropped for the same reason, whatever that is.
  for (const char* kind : {"drop", "state", "warning", "QoS", "latency", "context switch"}) {
    for (const Json& event : outlier.at("near")) {
      if (event.at("kind") == kind) return kind;
    }
  }
  return "nothing seen";
}

std::string cause_colour(std::string_view cause) {
  if (cause == "drop") return "var(--bad)";
  if (cause == "context switch") return "var(--case1)";
  return cause == "nothing seen" ? "var(--dim)" : "var(--case2)";
}

/// A bar for each case, a piece of it for each stage; `key` is "typical" or "slow". Empty: nothing to draw, here as
/// below.
std::string stage_bars(const Cases& cases, const std::string& key, const std::string& title) {
  constexpr double bar = 20;
  constexpr double pitch = 27;
  constexpr double top = 8;
  std::vector<std::pair<const Json*, double>> sums;
  double most = 0;
  for (const Json* one : cases) {
    if (one->at(key).empty()) continue;
    double sum = 0;
    for (const Json& time : one->at(key)) sum += time.get<double>();
    sums.emplace_back(one, sum);
    most = std::max(most, sum);
  }
  if (most <= 0) return {};
  const double bottom = top + pitch * static_cast<double>(sums.size());
  const double scale = (width - gutter - 90) / most;
  Drawing drawing("bars", title, bottom + 26);
  drawing.time_axis(gutter, width - 90, most, top, bottom);
  double y = top + (pitch - bar) / 2;
  for (const auto& [one, sum] : sums) {
    drawing.text(gutter - 8, y + bar / 2 + 4, title_of(*one), "right");
    double x = gutter;
    for (const auto& [stage, time] : one->at(key).items()) {
      const auto ns = time.get<double>();
      drawing.box(x, y, ns * scale, bar, stage_colour(stage),
                  fmt::format("{}: {} {}, {:.0f}% of {}\n{}", title_of(*one), stage, short_time(ns), 100 * ns / sum,
                              short_time(sum), explain(stage)));
      x += ns * scale;
    }
    drawing.text(x + 6, y + bar / 2 + 4, short_time(sum));
    y += pitch;
  }
  return drawing.take();
}

/// How many frames took how long, a row for each case, both axes logarithmic.
std::string histograms(const Cases& cases, const std::string& title) {
  constexpr double row = 54;  // of a case, of which the bars have `tallest` at most
  constexpr double tallest = 44;
  constexpr double right = width - 20;
  std::vector<std::pair<const Json*, std::vector<Bin>>> drawn;
  double least = 0;
  double most = 0;
  std::uint64_t frames = 1;
  for (const Json* one : cases) {
    std::vector<Bin> bins = bins_of(*one);
    if (bins.empty()) continue;
    const auto from = static_cast<double>(std::max<std::int64_t>(bins.front().from_ns, 1));
    least = least == 0 ? from : std::min(least, from);
    most = std::max(most, static_cast<double>(bins.back().to_ns));
    for (const Bin& bin : bins) frames = std::max(frames, bin.frames);
    drawn.emplace_back(one, std::move(bins));
  }
  if (drawn.empty()) return {};
  const double bottom = row * static_cast<double>(drawn.size());
  Drawing drawing("histograms", title, bottom + 40);
  const double decades = std::max(std::log10(most / least), 0.5);
  const auto x_of = [&](double ns) {
    return gutter + std::log10(std::max(ns, least) / least) / decades * (right - gutter);
  };
  // A frame alone has a bar, too: a count of n is as high as log(2 n).
  const auto height_of = [&](std::uint64_t count) {
    return std::log(2 * static_cast<double>(count)) / std::log(2 * static_cast<double>(frames)) * tallest;
  };
  for (const double ns : ticks_between(std::log10(least), std::log10(least) + decades)) {
    drawing.line(x_of(ns), 0, x_of(ns), bottom, "grid");
    drawing.text(x_of(ns), bottom + 18, short_time(ns), "middle");
  }
  double y = row;
  for (const auto& [one, bins] : drawn) {
    const auto highest =
        std::max_element(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) { return a.frames < b.frames; });
    drawing.line(gutter, y, right, y, "grid");
    drawing.text(gutter - 8, y - tallest / 2, title_of(*one), "right");
    drawing.text(gutter - 8, y - tallest / 2 + 14, fmt::format("highest: {}", highest->frames), "right dim");
    for (const Bin& bin : bins) {
      const double from = x_of(static_cast<double>(bin.from_ns));
      drawing.box(
          from, y - height_of(bin.frames), x_of(static_cast<double>(bin.to_ns)) - from, height_of(bin.frames),
          case_colour(*one),
          fmt::format("{}: {} frame{} from {} to {}", title_of(*one), bin.frames, bin.frames == 1 ? "" : "s",
                      short_time(static_cast<double>(bin.from_ns)), short_time(static_cast<double>(bin.to_ns))));
    }
    y += row;
  }
  drawing.text((gutter + width) / 2, bottom + 36, "how long a frame took, and how many did: both logarithmic",
               "middle dim");
  return drawing.take();
}

/// The slowest frames over the time of the run.
std::string timeline(const Cases& cases, const std::string& title) {
  constexpr double top = 10;
  constexpr double bottom = 240;
  constexpr double left = 70;
  constexpr double right = width - 20;
  double least = 0;
  double most = 0;
  double last = 0;
  for (const Json* one : cases) {
    for (const Json& outlier : one->at("outliers")) {
      const auto ns = outlier.at("time_ns").get<double>();
      least = least == 0 ? ns : std::min(least, ns);
      most = std::max(most, ns);
      last = std::max(last, outlier.at("at_ns").get<double>());
    }
  }
  if (most == 0 || last <= 0) return {};
  Drawing drawing("timeline", title, bottom + 40);
  const double low = std::log10(std::max(least, 1.0)) - 0.05;
  const double high = std::max(std::log10(std::max(most, 1.0)) + 0.05, low + 0.5);
  const auto y_of = [&](double ns) {
    return bottom - (std::log10(std::max(ns, 1.0)) - low) / (high - low) * (bottom - top);
  };
  for (const double ns : ticks_between(low, high)) {
    drawing.line(left, y_of(ns), right, y_of(ns), "grid");
    drawing.text(left - 8, y_of(ns) + 4, short_time(ns), "right");
  }
  drawing.time_axis(left, right, last, top, bottom);
  drawing.text((left + width) / 2, bottom + 36, "since the measurement began", "middle dim");
  for (const Json* one : cases) {
    for (const Json& outlier : one->at("outliers")) {
      drawing.dot(left + outlier.at("at_ns").get<double>() / last * (right - left), y_of(outlier.at("time_ns")),
                  cause_colour(cause_of(outlier)), hint_of(*one, outlier));
    }
  }
  return drawing.take();
}

constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--bg:#fff;--text:#1b1f24;--dim:#6a737d;--line:#d8dee4;--panel:#f6f8fa;--bad:#c8102e;
--stage0:#b0b8c0;--stage1:#0072b2;--stage2:#56b4e9;--stage3:#e69f00;--stage4:#f0c75e;--stage5:#cc79a7;--stage6:#009e73;
--stage7:#d55e00;--stage8:#8a8f98;--case0:#0060c0;--case1:#c65d00;--case2:#008a64;--case3:#9250b8;--case4:#b03060;
--case5:#606060;--case6:#8a6d00}
@media(prefers-color-scheme:dark){:root{--bg:#0f1318;--text:#e6edf3;--dim:#98a2ad;--line:#30373f;--panel:#171c23;
--bad:#ff6b7a;--stage0:#5c6670;--stage1:#3d9be0;--stage8:#747b85;--case0:#5aa9ff;--case1:#ff9d4d;--case2:#3fd0a4;
--case3:#c79bf0;--case4:#f08cb0;--case5:#b0b0b0;--case6:#d9c04a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1040px;padding:16px;background:var(--bg);color:var(--text);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5em;margin:.2em 0}h2{margin:1.6em 0 .3em;padding-top:.6em;border-top:1px solid var(--line)}
p{margin:.5em 0}code{font-size:.92em;overflow-wrap:anywhere}
.mark{background:var(--bad);color:var(--bg);padding:.5em .8em;border-radius:6px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:.8em 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5em 0}
th,td{padding:3px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th[colspan]{text-align:center}thead th{color:var(--dim);font-weight:500}
tr.total td{background:var(--panel)}td.best{font-weight:700}td small{color:var(--dim)}
.why{white-space:normal;text-align:left}td.why{color:var(--dim)}
figure{margin:1em 0}figcaption{font-weight:600;margin-bottom:4px}
svg{display:block;width:100%;min-width:600px;height:auto;font:12px system-ui,sans-serif;fill:var(--text)}
.grid{stroke:var(--line)}.right{text-anchor:end}.middle{text-anchor:middle}
text.dim{fill:var(--dim)}circle{stroke:var(--bg);fill-opacity:.8}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.88em;color:var(--dim)}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:5px;vertical-align:-1px}
details{margin:.4em 0;padding:.3em .8em;background:var(--panel);border-radius:6px}summary{cursor:pointer}
details td{border-color:var(--line)}.note{color:var(--dim);font-size:.92em}
)css";

std::string legend_item(const std::string& colour, std::string_view text) {
  return fmt::format("<span><i style=\"background:{}\"></i>{}</span>", colour, escape(text));
}

std::string stage_legend(const Cases& cases) {
  std::string made = "<div class=\"legend\">";
  for (const std::string& name : row_names) {
    const bool drawn = std::any_of(cases.begin(), cases.end(), [&](const Json* one) {
      return one->at("typical").contains(name) || one->at("slow").contains(name);
    });
    if (drawn) made += legend_item(stage_colour(name), fmt::format("{}: {}", name, explain(name)));
  }
  return made + "</div>\n";
}

std::string cause_legend(const Cases& cases) {
  std::set<std::string> causes;
  for (const Json* one : cases) {
    for (const Json& outlier : one->at("outliers")) causes.insert(cause_of(outlier));
  }
  std::string made = "<div class=\"legend\">";
  for (const std::string& cause : causes) made += legend_item(cause_colour(cause), cause);
  return made + "</div>\n";
}

/// Sizes across, cases down: what the run was made for.
std::string overview(const Json& report) {
  const std::string headline = headline_of(report);
  const auto frames = frames_of(report);
  std::vector<double> best(frames.size(), 0);
  for (const Json& one : report.at("cases")) {
    const Json& times = one.at("times").at(headline);
    if (times.at("count") == 0 || !state_of(one).empty()) continue;
    double& least = best[std::find(frames.begin(), frames.end(), one.at("frame").get<std::string>()) - frames.begin()];
    if (const double p50 = times.at("p50"); least == 0 || p50 < least) least = p50;
  }
  std::string made = "<div class=\"scroll\"><table id=\"overview\"><thead><tr><th></th>";
  for (const std::string& frame : frames) made += fmt::format("<th colspan=\"2\">{}</th>", escape(frame));
  made += "</tr><tr><th></th>";
  for (std::size_t i = 0; i < frames.size(); ++i) made += "<th>P50</th><th>P99</th>";
  made += "</tr></thead><tbody>\n";
  for (const std::string& title : titles_of(report)) {
    made += fmt::format("<tr><td>{}</td>", escape(title));
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const Json* one = find_case(report, frames[i], title);
      if (one == nullptr) {
        made += "<td></td><td></td>";
        continue;
      }
      const Json& times = one->at("times").at(headline);
      const std::string state = state_of(*one);
      const std::string hint = state.empty() ? std::string() : fmt::format(" title=\"{}\"", escape(state));
      if (times.at("count") == 0) {
        made += fmt::format("<td colspan=\"2\"{}><small>{}</small></td>", hint, no_figure_of(*one));
        continue;
      }
      const bool is_best = state.empty() && times.at("p50").get<double>() == best[i];
      made += fmt::format("<td{}{}>{}{}</td><td{}>{}</td>", is_best ? " class=\"best\"" : "", hint,
                          short_time(times.at("p50")), state.empty() ? "" : "!", hint, short_time(times.at("p99")));
    }
    made += "</tr>\n";
  }
  return made + "</tbody></table></div>\n";
}

/// What it costs that a frame goes to another process.
std::string across(const Json& report) {
  const Json all = across_of(report);
  if (all.empty()) return {};
  std::string made = fmt::format(
      "<p><b>handover</b>: {}. In one process and in two, measured in turns.</p>\n<div class=\"scroll\"><table "
      "id=\"across\"><thead><tr><th></th><th colspan=\"2\">1 process</th><th colspan=\"2\">2 processes</th><th>more at "
      "P50</th></tr><tr><th></th><th>P50</th><th>P99</th><th>P50</th><th>P99</th><th></th></tr></thead><tbody>\n",
      explain("handover"));
  for (const Json& one : all) {
    made += fmt::format("<tr><td>{}, {}</td>", escape(one.at("frame").get<std::string>()), escape(title_of(one)));
    for (const auto& [p50, p99] : {std::pair("one_p50", "one_p99"), {"two_p50", "two_p99"}}) {
      made += fmt::format("<td>{}</td><td>{}</td>", short_time(one.at(p50)), short_time(one.at(p99)));
    }
    made += fmt::format("<td>{}</td></tr>\n", short_time(one.at("more_p50")));
  }
  return made + "</tbody></table></div>\n";
}

std::string slow_frames(const Json& one) {
  std::string made =
      "<div class=\"scroll\"><table><thead><tr><th>slowest frames</th><th>time</th><th>most of it</th><th "
      "class=\"why\">what "
      "happened then</th></tr></thead><tbody>\n";
  for (const Json& outlier : one.at("outliers")) {
    std::string longest;
    double most = -1;
    for (const auto& [stage, time] : outlier.at("stages").items()) {
      if (time.get<double>() > most) {
        most = time;
        longest = stage;
      }
    }
    std::string near;
    for (const Json& event : outlier.at("near")) {
      near += (near.empty() ? "" : "; ") + event.at("text").get<std::string>();
    }
    made +=
        fmt::format("<tr><td>round {}, frame {}, at {}</td><td>{}</td><td>{} {}</td><td class=\"why\">{}</td></tr>\n",
                    outlier.at("round").get<unsigned>(), outlier.at("sequence").get<std::uint64_t>(),
                    short_time(outlier.at("at_ns").get<double>()), short_time(outlier.at("time_ns")), escape(longest),
                    short_time(most), escape(near.empty() ? "nothing seen" : near));
  }
  return made + "</tbody></table></div>\n";
}

std::string details(const Json& one, std::size_t number) {
  const std::string state = state_of(one);
  if (one.at("frames") == 0) {
    return fmt::format("<p class=\"note\"><b>{}</b> {}</p>\n", escape(title_of(one)), escape(state));
  }
  std::string made = fmt::format("<details><summary><b>{}</b> <span class=\"note\">{}</span></summary>\n",
                                 escape(title_of(one)), escape(counts_of(one)));
  if (!state.empty()) made += fmt::format("<p class=\"mark\">{}</p>", escape(state));
  made += "<div class=\"scroll\"><table><thead><tr><th></th>";
  for (const Column& column : columns) made += fmt::format("<th>{}</th>", column.title);
  made += "</tr></thead><tbody>\n";
  for (const std::string& row : row_names) {
    if (!has_row(one, row)) continue;
    const Json& times = one.at("times").at(row);
    const bool stage = one.at("typical").contains(row);
    made += fmt::format("<tr{}><td title=\"{}\">{}</td>", stage ? "" : " class=\"total\"", escape(explain(row)), row);
    for (const Column& column : columns) {
      made += fmt::format("<td data-case=\"{}\" data-row=\"{}\" data-column=\"{}\">{}</td>", number, row, column.key,
                          short_time(times.at(column.key)));
    }
    made += "</tr>\n";
  }
  made += "</tbody></table></div>\n" + slow_frames(one);
  return made + fmt::format("<p class=\"note\"><code>gst-launch-1.0 {}</code></p></details>\n",
                            escape(one.at("line").get<std::string>()));
}

std::string head(const Json& report) {
  const Json& machine = report.at("machine");
  const auto text = [&](const char* key) { return machine.at(key).get<std::string>(); };
  std::string made = "<h1>gpumap-latency</h1>\n";
  if (machine.at("software").get<bool>()) {
    made +=
        "<p class=\"mark\"><b>software</b>: the \"GPU\" is this machine's CPU. These are no figures of a GPU.</p>\n";
  }
  std::string command = "gpumap-latency";
  for (const Json& argument : report.at("options").at("command_line")) {
    const auto word = argument.get<std::string>();
    command += word.find_first_of(" \"'!{}") == std::string::npos ? " " + word : " '" + word + "'";
  }
  const auto commit = report.at("commit").get<std::string>();
  made += "<dl>";
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>("device", text("device")),
        {"driver", text("driver") + ", kernels through " + text("backend")},
        {"CPU", fmt::format("{}, {} CPUs", text("cpu"), machine.at("cores").get<unsigned>())},
        {"system", text("system")},
        {"date", text("date")},
        {"gpumap", report.at("version").get<std::string>() + (commit.empty() ? "" : ", commit " + commit)},
        {"measured", way_of(report)}}) {
    made += fmt::format("<dt>{}</dt><dd>{}</dd>", name, escape(value));
  }
  return made + fmt::format("<dt>command</dt><dd><code>{}</code></dd></dl>\n", escape(command));
}

}  // namespace

std::string to_page(const Json& report) {
  const std::string mark = mark_of(report);
  const std::string headline = headline_of(report);
  std::string made =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n";
  made += fmt::format("<title>gpumap-latency: {}{}</title>\n<style>{}</style></head><body>\n",
                      escape(report.at("machine").at("device").get<std::string>()), mark, style);
  made += head(report);
  made += fmt::format("<p><b>{}</b>: {}. Of half the frames it was no more than P50, of 99% no more than P99.{}</p>\n",
                      headline, explain(headline), mark);
  made += overview(report);
  made += across(report);

  const Json& all = report.at("cases");
  for (const std::string& frame : frames_of(report)) {
    Cases cases;
    for (const Json& one : all) {
      if (one.at("frame") == frame) cases.push_back(&one);
    }
    made += fmt::format("<h2>{}{}</h2>\n", escape(frame), mark);
    made += stage_bars(cases, "typical", frame + ", a typical frame: the middle tenth, mean");
    made += stage_bars(cases, "slow", frame + ", a slow frame: the slowest hundredth, mean");
    made += stage_legend(cases);
    made += histograms(cases, fmt::format("{}, {}: how many frames took how long", frame, headline));
    made += timeline(cases, fmt::format("{}, {}: the slowest frames, and what happened then", frame, headline));
    made += cause_legend(cases);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].at("frame") == frame) made += details(all[i], i);
    }
  }
  made += "<h2>What these figures are not</h2>\n<ul class=\"note\">";
  for (const std::string& caveat : caveats_of(report)) made += fmt::format("<li>{}</li>", escape(caveat));
  made +=
      "<li>What happened beside a slow frame need not be why it was slow. Threads are looked at every 5 ms, so a "
      "context "
      "switch is told up to that much too late, and one of somebody else's process is not seen.</li></ul>\n";
  return made + "</body></html>\n";
}

}  // namespace latency
