// Summaries as JSON and as rows of tables, the same for every benchmark.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/statistics.h"
#include "bench/table.h"

namespace tidemill {

// Times in milliseconds, under names that end with _ms.
nlohmann::ordered_json json_of(const Distribution& seconds);
nlohmann::ordered_json json_of(const LoadSummary& summary);
nlohmann::ordered_json json_of(const RequestRecord& record);
// {"all": ..., "by_class": {...}}; classes only where there are several.
nlohmann::ordered_json json_by_class(std::span<const RequestRecord> records, double wall_s);

// A table of loads: throughput, first tokens, gaps, jitter.
Table load_table(const std::string& first_heading);
void add_load_row(Table& table, const std::string& name, const LoadSummary& summary);
// One row for all, one for each class where there are several.
void add_load_rows(Table& table, const std::string& name, std::span<const RequestRecord> records, double wall_s);

// One JSON object a line.
Result<void> write_records(const std::string& path, std::span<const RequestRecord> records);

}  // namespace tidemill
