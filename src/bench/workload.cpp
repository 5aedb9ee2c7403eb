#include "bench/workload.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "bench/text_lines.h"

namespace tidemill {
namespace {

constexpr int64_t document_chars = 24000;
constexpr int64_t common_chars = 4000;

BenchRequest mixed_request(RandomSource& random, const PromptText& text) {
  const auto prompt_tokens = std::clamp<int64_t>(static_cast<int64_t>(random.lognormal(4.6, 1.0)), 8, 1200);
  const auto new_tokens = std::clamp<int64_t>(static_cast<int64_t>(random.lognormal(4.2, 0.8)), 8, 256);
  return {text.cut(random, prompt_tokens * chars_per_token), static_cast<int32_t>(new_tokens), "mixed", {}};
}

BenchRequest chat_request(RandomSource& random, const PromptText& text) {
  std::string prompt = text.cut(random, random.between(80, 799));
  return {std::move(prompt), static_cast<int32_t>(random.between(16, 127)), "chat", {}};
}

BenchRequest longdoc_request(RandomSource& random, const PromptText& text, int32_t index) {
  if (index % 8 == 7) return {text.cut(random, document_chars), 8, "long", {}};
  return {text.cut(random, 160), 128, "short", {}};
}

Result<BenchRequest> parse_row(std::string_view line) {
  const Result<nlohmann::json> row = parse_json(line, 8);
  if (!row) return row.error();
  if (!row->is_object()) return error("is no JSON object");
  const auto prompt = row->find("prompt"), tokens = row->find("max_tokens"), name = row->find("class");
  if (prompt == row->end() || !prompt->is_string()) return error("has no text \"prompt\"");
  if (tokens == row->end() || !tokens->is_number_integer()) return error("has no whole number \"max_tokens\"");
  const auto count = tokens->get<int64_t>();
  if (count < 1 || count > longest_bench_answer_tokens) {
    return error("wants {} tokens, which is not between 1 and {}", count, longest_bench_answer_tokens);
  }
  if (name != row->end() && !name->is_string()) return error("has a \"class\" that is no text");
  BenchRequest request;
  request.prompt = prompt->get<std::string>();
  request.max_tokens = static_cast<int32_t>(count);
  request.class_name = name == row->end() ? "all" : printable(name->get<std::string>());
  if (request.prompt.empty()) return error("has an empty \"prompt\"");
  return request;
}

}  // namespace

std::vector<BenchRequest> make_workload(WorkloadKind kind, int32_t num_requests, uint64_t seed,
                                        const PromptText& text) {
  RandomSource random(seed);
  std::vector<BenchRequest> requests;
  const std::string common = kind == WorkloadKind::shared ? text.cut(random, common_chars) + "\n\n" : "";
  for (int32_t i = 0; i < num_requests; ++i) {
    switch (kind) {
      case WorkloadKind::mixed:
        requests.push_back(mixed_request(random, text));
        break;
      case WorkloadKind::chat:
        requests.push_back(chat_request(random, text));
        break;
      case WorkloadKind::longdoc:
        requests.push_back(longdoc_request(random, text, i));
        break;
      case WorkloadKind::shared:
        requests.push_back({common + text.cut(random, random.between(40, 199)), 32, "shared", {}});
        break;
    }
  }
  return requests;
}

Result<std::vector<BenchRequest>> read_workload(const std::filesystem::path& path, int32_t num_requests) {
  std::vector<BenchRequest> requests;
  Result<void> done = for_each_line(path, num_requests, [&](std::string_view line) -> Result<void> {
    Result<BenchRequest> request = parse_row(line);
    if (!request) return request.error();
    requests.push_back(*std::move(request));
    return {};
  });
  if (!done) return done.error();
  return requests;
}

Result<std::vector<BenchRequest>> read_prompts(const std::filesystem::path& path, int32_t num_requests,
                                               int32_t max_tokens) {
  std::vector<BenchRequest> requests;
  Result<void> done = for_each_line(path, num_requests, [&](std::string_view line) -> Result<void> {
    if (!is_valid_utf8(line)) return error("is not UTF-8");
    requests.push_back({std::string(line), max_tokens, "all", {}});
    return {};
  });
  if (!done) return done.error();
  return requests;
}

}  // namespace tidemill
