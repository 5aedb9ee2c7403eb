// /metrics: the engine's statistics and the server's own counters in Prometheus' text format 0.0.4.
//
// Names are vLLM's under "tidemill:". Labels are model_name (the first served name), engine, and fixed sets; nothing
// that a client sends becomes a label, so the number of series never grows.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "engine/engine_stats.h"
#include "server/router.h"

namespace tidemill {

// Replies by route and status. Any thread.
class HttpCounters {
 public:
  void count(RouteId route, int status);
  uint64_t get(size_t route, size_t status_index) const { return counts_[route][status_index]; }
  static constexpr std::array statuses = {"200", "204", "400", "401", "404", "405", "408", "413",
                                          "415", "429", "431", "499", "500", "501", "503", "other"};

 private:
  std::array<std::array<std::atomic<uint64_t>, statuses.size()>, num_routes> counts_{};
};

inline constexpr const char* metrics_content_type = "text/plain; version=0.0.4; charset=utf-8";

// kv_formats: their names, by KvFormatId.
std::string metrics_text(const EngineStats& stats, std::span<const std::string> kv_formats, const HttpCounters& http,
                         size_t num_connections, const std::string& model_name);

}  // namespace tidemill
