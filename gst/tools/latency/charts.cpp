// SPDX-License-Identifier: MIT
#include "gst/tools/latency/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

namespace latency {
namespace {

constexpr double width = 760;
constexpr double gutter = 130;  // of names and of the y axis

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

/// 1, 2 or 5 times a power of ten, so that about five fit.
double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

/// Times on a logarithmic y axis, with its lines and labels.
class TimeAxis {
 public:
  TimeAxis(double least, double most, double top, double bottom) : top_(top), bottom_(bottom) {
    low_ = std::log10(std::max(least, 1.0)) - 0.05;
    high_ = std::max(std::log10(std::max(most, 1.0)) + 0.05, low_ + 0.5);
  }
  [[nodiscard]] double at(double ns) const {
    return bottom_ - (std::log10(std::max(ns, 1.0)) - low_) / (high_ - low_) * (bottom_ - top_);
  }
  void draw(Drawing& drawing, double left, double right) const {
    const bool fine = high_ - low_ < 2.5;  // 1, 2, 5; else powers of ten only
    for (int power = static_cast<int>(std::floor(low_)); power <= static_cast<int>(high_); ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double ns = factor * std::pow(10, power);
        if ((factor != 1 && !fine) || std::log10(ns) < low_ || std::log10(ns) > high_) continue;
        drawing.line(left, at(ns), right, at(ns), "grid");
        drawing.text(left - 8, at(ns) + 4, short_time(ns), "right");
      }
    }
  }

 private:
  double top_, bottom_, low_ = 0, high_ = 1;
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

}  // namespace

std::string escape(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '"':
        made += "&quot;";
        break;
      case '\'':
        made += "&#39;";
        break;
      default:
        // Of control characters HTML takes these two.
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') made += c;
    }
  }
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

std::string stage_bars(const Cases& cases, const std::string& key, const std::string& title) {
  constexpr double bar = 20;
  constexpr double pitch = 27;
  constexpr double top = 8;
  double most = 0;
  std::size_t rows = 0;
  for (const Json* one : cases) {
    double sum = 0;
    for (const Json& time : one->at(key)) sum += time.get<double>();
    most = std::max(most, sum);
    if (!one->at(key).empty()) ++rows;
  }
  if (rows == 0 || most <= 0) return {};
  const double bottom = top + pitch * static_cast<double>(rows);
  const double scale = (width - gutter - 90) / most;
  Drawing drawing("bars", title, bottom + 26);
  for (int tick = 0; tick * step_for(most) <= most * 1.0001; ++tick) {
    const double at = tick * step_for(most);
    drawing.line(gutter + at * scale, top, gutter + at * scale, bottom, "grid");
    drawing.text(gutter + at * scale, bottom + 18, at == 0 ? "0" : short_time(at), "middle");
  }
  double y = top + (pitch - bar) / 2;
  for (const Json* one : cases) {
    if (one->at(key).empty()) continue;
    drawing.text(gutter - 8, y + bar / 2 + 4, title_of(*one), "right");
    double sum = 0;
    for (const Json& time : one->at(key)) sum += time.get<double>();
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
  const bool fine = decades < 2.5;
  for (int power = static_cast<int>(std::floor(std::log10(least))); power <= std::log10(most); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double ns = factor * std::pow(10, power);
      if ((factor != 1 && !fine) || ns < least || x_of(ns) > right) continue;
      drawing.line(x_of(ns), 0, x_of(ns), bottom, "grid");
      drawing.text(x_of(ns), bottom + 18, short_time(ns), "middle");
    }
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

std::string timeline(const Cases& cases, const std::string& title) {
  constexpr double top = 10;
  constexpr double bottom = 240;
  constexpr double left = 70;
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
  const double scale = (width - left - 20) / last;
  TimeAxis axis(least, most, top, bottom);
  axis.draw(drawing, left, width - 20);
  for (int tick = 0; tick * step_for(last) <= last * 1.0001; ++tick) {
    const double at = tick * step_for(last);
    drawing.line(left + at * scale, top, left + at * scale, bottom, "grid");
    drawing.text(left + at * scale, bottom + 18, at == 0 ? "0" : short_time(at), "middle");
  }
  drawing.text((left + width) / 2, bottom + 36, "since the measurement began", "middle dim");
  for (const Json* one : cases) {
    for (const Json& outlier : one->at("outliers")) {
      drawing.dot(left + outlier.at("at_ns").get<double>() * scale, axis.at(outlier.at("time_ns")),
                  cause_colour(cause_of(outlier)), hint_of(*one, outlier));
    }
  }
  return drawing.take();
}

}  // namespace latency
