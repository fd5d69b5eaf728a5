// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "rows.hpp"

namespace gpumap::top {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& figure) {
  return figure ? Json(*figure) : Json(nullptr);
}

Json of_client(const ClientRow& row) {
  const LinkClient& who = row.now.who;
  constexpr std::string_view policies[] = {"no", "newest", "oldest"};
  return {{"index", who.index},
          {"pid", who.pid},
          {"uid", who.uid},
          {"name", who.name},
          {"leaky", policies[static_cast<std::size_t>(who.leak)]},
          {"frames", who.shown},
          {"frames_per_s", or_null(row.frames_per_s)},
          {"slots", who.slots},
          {"lag_frames", row.now.lag},
          {"lag_ms", static_cast<double>(row.now.lag_ns) * 1e-6},
          {"missed", who.dropped},
          {"latency_p50_us", row.latency ? Json(row.latency->p50_us) : Json(nullptr)},
          {"latency_p99_us", row.latency ? Json(row.latency->p99_us) : Json(nullptr)},
          {"latency_max_us", row.latency ? Json(row.latency->max_us) : Json(nullptr)}};
}

Json of_ring(const RingRow& row) {
  if (!row.now.report) return {{"path", row.now.path}, {"trouble", row.now.trouble}};
  const LinkReport& ring = *row.now.report;
  Json clients = Json::array();
  for (const ClientRow& client : row.clients) clients.push_back(of_client(client));
  return {{"path", row.now.path},
          {"pid", ring.pid},
          {"program", ring.program},
          {"transport", to_string(ring.transport)},
          {"slots", ring.slots},
          {"slot_bytes", ring.slot_bytes},
          {"frame_bytes", row.frame_bytes},
          {"frames", ring.frames},
          {"frames_per_s", or_null(row.frames_per_s)},
          {"bytes", ring.bytes},
          {"bytes_per_s", or_null(row.bytes_per_s)},
          {"queued", ring.queued},
          {"with_clients", ring.busy},
          {"drops", ring.dropped},
          {"unseen", ring.unseen},
          {"stamps", ring.stamps},
          {"clients", std::move(clients)}};
}

}  // namespace

std::string to_json(std::span<const RingRow> rows, double interval_s) {
  Json rings = Json::array();
  for (const RingRow& row : rows) rings.push_back(of_ring(row));
  const Json all{{"version", GPUMAP_VERSION}, {"interval_s", interval_s}, {"rings", std::move(rings)}};
  // Names and paths come from other programs: what is not UTF-8 must not end this one, and no control character gets to
  // a terminal, of which ASCII with escapes has none.
  return all.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpumap::top
