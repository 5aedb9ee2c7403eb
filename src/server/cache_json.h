// The KV cache as JSON: every block as a row, and the totals. The form is described in docs/kv-sharing.md.
//
// Tenants appear as opaque labels: equal for equal tenants while the process lives, meaningless otherwise.
#pragma once

#include "engine/cache_map.h"
#include "engine/engine_config.h"
#include "server/json_fields.h"

namespace tidemill {

// Rows beyond so many are left out of a map, and counted.
inline constexpr size_t most_map_rows = 50'000;

Json cache_map_json(const CacheMap& map, const EngineConfig& config);
Json cache_changes_json(const CacheChanges& changes, const EngineConfig& config);

}  // namespace tidemill
