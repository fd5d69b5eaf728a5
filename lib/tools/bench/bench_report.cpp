// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "bench.hpp"

namespace bench {
namespace {

nlohmann::json to_json(const Row& row) {
  nlohmann::json made = bench::to_json(row.time);
  made["path"] = row.path;
  made["detail"] = row.detail;
  made["bytes"] = row.bytes;
  made["threads"] = row.threads;
  made["rival"] = row.rival;
  made["times"] = row.time.count;
  if (row.cpu_us) made["cpu_us"] = *row.cpu_us;
  if (row.rate && row.time.median_us > 0) {
    made["gb_per_s"] = static_cast<double>(row.bytes) / row.time.median_us / 1e3;
  }
  if (row.ratio > 0) {
    made["ratio"] = row.ratio;
    made["against"] = row.against;
  }
  return made;
}

std::string cell(const nlohmann::json& row, const char* key, int digits) {
  return row.contains(key) ? fmt::format("{:.{}f}", row[key].get<double>(), digits) : "";
}

}  // namespace

void set_ratios(std::vector<Row>& rows) {
  for (Row& row : rows) {
    double best = 0;
    for (const Row& other : rows) {
      if (&other == &row || !other.rival || other.bytes != row.bytes || other.detail != row.detail) continue;
      if (other.threads > row.threads || other.time.median_us <= 0) continue;
      if (best != 0 && other.time.median_us >= best) continue;
      best = other.time.median_us;
      row.ratio = row.time.median_us / best;
      row.against = other.threads > 1 ? fmt::format("{}, {} threads", other.path, other.threads) : other.path;
    }
  }
}

nlohmann::json make_report(const ModeReport& report) {
  nlohmann::json made = report.extra;
  made["mode"] = report.mode;
  made["what"] = report.what;
  made["rows"] = nlohmann::json::array();
  for (const Row& row : report.rows) made["rows"].push_back(to_json(row));
  made["not_measured"] = report.not_measured;
  return made;
}

void print_table(const nlohmann::json& mode, bool software) {
  const char* mark = software ? "  *software*" : "";
  fmt::print("\n{}: {}{}\n", mode["mode"].get<std::string>(), mode["what"].get<std::string>(), mark);
  fmt::print("{:<28} {:<22} {:>10} {:>3} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>6}  {}\n", "path", "", "bytes",
             "thr", "min us", "P50 us", "P90 us", "P99 us", "CPU us", "GB/s", "ratio", "against");
  for (const auto& row : mode["rows"]) {
    fmt::print("{:<28} {:<22} {:>10} {:>3} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10} {:>7} {:>6}  {}{}\n",
               row["path"].get<std::string>(), row["detail"].get<std::string>(), row["bytes"].get<std::size_t>(),
               row["threads"].get<unsigned>(), row["min_us"].get<double>(), row["median_us"].get<double>(),
               row["p90_us"].get<double>(), row["p99_us"].get<double>(), cell(row, "cpu_us", 2),
               cell(row, "gb_per_s", 3), cell(row, "ratio", 2), row.value("against", ""), mark);
  }
  for (const auto& what : mode["not_measured"]) fmt::print("not measured: {}\n", what.get<std::string>());
}

}  // namespace bench
