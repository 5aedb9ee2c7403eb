#include "bench/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "base/split_mix.h"
#include "bench/text_lines.h"

namespace tidemill {
namespace {

constexpr std::string_view azure_header = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr int64_t most_tokens = 1 << 24;
constexpr int64_t tokens_per_prefix_id = 512;
constexpr double most_text_bytes = 1e9;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2023-11-16 18:15:46.6805900" as seconds since 1970.
std::optional<double> parse_time(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  std::array<int64_t, 6> parts{};
  constexpr std::array<size_t, 6> starts = {0, 5, 8, 11, 14, 17};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto value = whole_number(text.substr(starts[i], i == 0 ? 4 : 2));
    if (!value || *value < 0) return std::nullopt;
    parts[i] = *value;
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(parts[0])),
                                         std::chrono::month(static_cast<unsigned>(parts[1])),
                                         std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!date.ok() || parts[3] > 23 || parts[4] > 59 || parts[5] > 60) return std::nullopt;
  double fraction = 0;
  if (text.size() > 19) {
    const std::string_view digits = text.substr(20);
    const auto value = whole_number(digits);
    if (text[19] != '.' || digits.size() > 9 || !value || *value < 0) return std::nullopt;
    fraction = static_cast<double>(*value) * std::pow(10.0, -static_cast<double>(digits.size()));
  }
  const auto days = static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
  return days * 86400 + static_cast<double>(parts[3] * 3600 + parts[4] * 60 + parts[5]) + fraction;
}

Result<int32_t> token_count(std::optional<int64_t> value, const char* name) {
  if (!value || *value < 0 || *value > most_tokens) {
    return error("{} is not a whole number between 0 and {}", name, most_tokens);
  }
  return static_cast<int32_t>(std::max<int64_t>(1, *value));
}

Result<TraceRow> parse_azure(std::string_view line) {
  const size_t first = line.find(','), second = first == line.npos ? line.npos : line.find(',', first + 1);
  if (second == line.npos || line.find(',', second + 1) != line.npos) return error("has not three columns");
  TraceRow row;
  const auto time = parse_time(line.substr(0, first));
  if (!time) return error("'{}' is not a time", printable(line.substr(0, first)));
  row.arrival_s = *time;
  const Result<int32_t> prompt = token_count(whole_number(line.substr(first + 1, second - first - 1)), "ContextTokens");
  if (!prompt) return prompt.error();
  const Result<int32_t> answer = token_count(whole_number(line.substr(second + 1)), "GeneratedTokens");
  if (!answer) return answer.error();
  row.prompt_tokens = *prompt;
  row.new_tokens = *answer;
  return row;
}

std::optional<int64_t> integer_at(const nlohmann::json& value, const char* key) {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

Result<TraceRow> parse_mooncake(std::string_view line) {
  const Result<nlohmann::json> json = parse_json(line, 4);
  if (!json) return json.error();
  if (!json->is_object()) return error("is no JSON object");
  TraceRow row;
  const auto time = integer_at(*json, "timestamp");
  if (!time || *time < 0 || *time > int64_t{1} << 50) return error("has no \"timestamp\" in milliseconds");
  row.arrival_s = static_cast<double>(*time) / 1000;
  const Result<int32_t> prompt = token_count(integer_at(*json, "input_length"), "input_length");
  if (!prompt) return prompt.error();
  const Result<int32_t> answer = token_count(integer_at(*json, "output_length"), "output_length");
  if (!answer) return answer.error();
  row.prompt_tokens = *prompt;
  row.new_tokens = *answer;
  const auto ids = json->find("hash_ids");
  if (ids == json->end()) return row;
  if (!ids->is_array()) return error("has \"hash_ids\" that are no list");
  for (const nlohmann::json& id : *ids) {
    if (!id.is_number_integer()) return error("has \"hash_ids\" that are no whole numbers");
    row.prefix_ids.push_back(id.get<int64_t>());
  }
  return row;
}

std::string prompt_of(const TraceRow& row, TraceScale scale, uint64_t seed, RandomSource& random,
                      const PromptText& text) {
  const auto scaled_chars = [&](int64_t tokens) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * chars_per_token * scale.length));
  };
  if (row.prefix_ids.empty()) return text.cut(random, scaled_chars(row.prompt_tokens));
  std::string prompt;
  int64_t left = row.prompt_tokens;
  for (size_t i = 0; i < row.prefix_ids.size() && left > 0; ++i) {
    const int64_t tokens = std::min(left, tokens_per_prefix_id);
    RandomSource of_block(split_mix(seed) + static_cast<uint64_t>(row.prefix_ids[i]));
    prompt += text.cut(of_block, scaled_chars(tokens)) + " ";
    left -= tokens;
  }
  return prompt;
}

}  // namespace

Result<std::vector<TraceRow>> read_trace(const std::filesystem::path& path, int32_t num_requests) {
  std::vector<TraceRow> rows;
  bool is_azure = false, is_first = true;
  const int64_t with_header = int64_t{num_requests} + 1;
  Result<void> done = for_each_line(path, with_header, [&](std::string_view line) -> Result<void> {
    if (std::exchange(is_first, false)) {
      is_azure = line == azure_header;
      if (is_azure) return {};
      if (!line.starts_with('{')) return error("is neither '{}' nor a JSON object", azure_header);
    }
    Result<TraceRow> row = is_azure ? parse_azure(line) : parse_mooncake(line);
    if (!row) return row.error();
    if (rows.size() < static_cast<size_t>(num_requests)) rows.push_back(*std::move(row));
    return {};
  });
  if (!done) return done.error();
  if (rows.empty()) return error("{} has no rows under its header", printable(path.filename().string()));
  std::ranges::stable_sort(rows, {}, &TraceRow::arrival_s);
  const double first = rows.front().arrival_s;
  for (TraceRow& row : rows) row.arrival_s -= first;
  return rows;
}

Result<std::vector<BenchRequest>> trace_requests(const std::vector<TraceRow>& rows, TraceScale scale, uint64_t seed,
                                                 const PromptText& text) {
  double bytes = 0;
  for (const TraceRow& row : rows) bytes += static_cast<double>(row.prompt_tokens) * chars_per_token * scale.length;
  if (bytes > most_text_bytes) {
    return error("the prompts of {} requests need {:.1f} GB of text, more than {:.0f}", rows.size(), bytes / 1e9,
                 most_text_bytes / 1e9);
  }
  RandomSource random(seed);
  std::vector<BenchRequest> requests;
  for (const TraceRow& row : rows) {
    const double new_tokens = std::clamp(static_cast<double>(row.new_tokens) * scale.length, 1.0,
                                         static_cast<double>(longest_bench_answer_tokens));
    requests.push_back({prompt_of(row, scale, seed, random, text), static_cast<int32_t>(std::lround(new_tokens)),
                        "trace", row.arrival_s / scale.rate});
  }
  return requests;
}

}  // namespace tidemill
