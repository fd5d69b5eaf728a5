// SPDX-License-Identifier: MIT
// gpumap-top: the rings that are served at sockets, and who takes frames from them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <gpumap/error.hpp>
#include <gpumap/link_report.hpp>
#include <gpumap/printable.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "top_rows.hpp"

namespace {

using namespace gpumap;  // NOLINT
using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr const char* footer = R"(Of a ring:
  FRAME     bytes of a frame; FRAMES/S and MB/S (10^6 bytes) as handed on to clients
  USED      slots that hold frames, of all
  DROPS     frames given up because the ring was full (leaky= of gpumapsink)
  UNSEEN    frames that were shown to no client
Of a client:
  LEAKY     what it misses when it is too slow: no (nothing: the producer waits), newest or oldest frames
  SLOTS     frames that it has, or may take
  LAG, FOR  how many frames its oldest one is behind the newest, and how long ago that one was published
  MISSED    frames that it did not get
  latency   with stamps=true on gpumapsink: time from a frame's publication until it is given back; half of those that
            came back in the last interval took P50 at most, 99 % of them P99; within 1 in 16
Counts are since the server began, rates of the last interval. Only this user's servers are asked, and only those in
this network namespace are found by themselves: name the sockets of others that you may connect to.)";

struct Options {
  std::vector<std::string> paths;
  double interval_s = 1;
  bool json = false;
  bool once = false;
};

std::vector<LinkSight> look(const Options& options) {
  constexpr milliseconds longest{500};
  const auto paths = options.paths.empty() ? find_links() : options.paths;
  const auto patience =
      std::min<nanoseconds>(longest, std::chrono::duration_cast<nanoseconds>(duration<double>(options.interval_s)));
  return observe_links(paths, Clock::now() + patience);
}

std::string page(const std::vector<top::RingRow>& rows, const Options& options) {
  std::size_t clients = 0;
  for (const top::RingRow& row : rows) clients += row.clients.size();
  return fmt::format("gpumap-top: {} ring{}, {} client{}, every {} s\n\n{}", rows.size(), rows.size() == 1 ? "" : "s",
                     clients, clients == 1 ? "" : "s", options.interval_s, top::to_table(rows));
}

/// False: nobody reads any more.
bool print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return true;
  if (errno == EPIPE) return false;
  throw Error(ErrorCode::io, fmt::format("standard output takes no more: {}", std::strerror(errno)));
}

/// False: a socket that was named has no server, or none that this user may ask.
[[nodiscard]] bool run(const Options& options) {
  const auto interval = std::chrono::duration_cast<nanoseconds>(duration<double>(options.interval_s));
  std::vector<LinkSight> before = look(options);
  for (Deadline next = Clock::now() + interval;; next = std::max<Deadline>(next + interval, Clock::now())) {
    std::this_thread::sleep_until(next);
    std::vector<LinkSight> now = look(options);
    const auto rows = top::make_rows(before, now);
    before = std::move(now);
    if (options.json) {
      print(top::to_json(rows, options.interval_s));
    } else if (!print(page(rows, options) + (options.once ? "" : "\n"))) {
      return true;
    }
    if (options.json || options.once) {
      return options.paths.empty() ||
             std::ranges::all_of(rows, [](const top::RingRow& row) { return row.now.report.has_value(); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Show the rings that this user's programs serve at sockets (gpumapsink socket-path=...), with their "
      "clients, rates and drops: a table each interval, until Ctrl-C. Like top: watch gpumap-top --once"};
  Options options;
  app.add_option("path", options.paths, "look at these sockets only; default: all that are found");
  app.add_option("--interval", options.interval_s, "seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->check([](const std::string& text) {  // a range takes NaN, which is neither below nor above any bound
        return std::string(std::isnan(std::strtod(text.c_str(), nullptr)) ? "that is no number" : "");
      })
      ->capture_default_str();
  app.add_flag("--once", options.once,
               "print one table, after one interval, and end: with 1 where a socket that was named has no server");
  app.add_flag("--json", options.json, "the same as JSON");
  app.set_version_flag("--version", "gpumap-top " GPUMAP_VERSION);
  app.footer(footer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(options) ? 0 : 1;
  } catch (const std::exception& error) {
    // fmt's throws where that cannot be written either
    std::fprintf(stderr, "gpumap-top: %s\n", gpumap::printable(error.what(), "\n\t").c_str());
    return 1;
  }
}
