#include "server/cache_endpoints.h"

#include <fmt/format.h>

#include <cmath>

namespace tidemill {
namespace {

constexpr int64_t default_ttl_s = 3600;
constexpr int64_t max_bytes = int64_t{1} << 50;

}  // namespace

std::variant<Json, ApiError> resize_cache(const Json& body, Engine& engine) {
  if (!body.is_object()) return bad_request("the body must be a JSON object");
  const EngineConfig& config = engine.config();
  Fields fields(body);
  const auto bytes = fields.integer("bytes", 1, max_bytes);
  const auto num_blocks = fields.integer("num_blocks", 1, int64_t{1} << 32);
  const auto share = fields.number("share", 0.001, 1000);
  if (fields.failed()) return *fields.error();
  if (bytes.has_value() + num_blocks.has_value() + share.has_value() != 1)
    return bad_request("say one of bytes, num_blocks and share");
  size_t block_bytes = 0;
  for (const BlockGroup& group : config.groups) block_bytes += group.sealed_bytes;
  size_t wanted = 0;
  if (bytes) wanted = static_cast<size_t>(*bytes);
  if (num_blocks) {
    if (static_cast<size_t>(*num_blocks) > static_cast<size_t>(max_bytes) / block_bytes)
      return bad_request(fmt::format("{} blocks of {} bytes are too many", *num_blocks, block_bytes), "num_blocks");
    wanted = static_cast<size_t>(*num_blocks) * block_bytes;
  }
  if (share) wanted = static_cast<size_t>(*share * static_cast<double>(config.kv_budget_bytes));
  if (const std::optional<std::string> problem = engine.resize_cache(wanted)) return bad_request(*problem);
  const EngineStats stats = engine.stats();
  return Json{{"object", "cache.resize"},
              {"wanted_bytes", wanted},
              {"wanted_blocks", wanted / block_bytes},
              {"budget_bytes", stats.kv_budget_bytes},
              {"held_bytes", stats.kv_held_bytes},
              {"occupied_bytes", stats.kv_occupied_bytes}};
}

ReadResult read_pin_request(const Json& body, const ServedModel& model, const ApiLimits& limits, Caller& caller) {
  if (!body.is_object()) return bad_request("the body must be a JSON object");
  Fields fields(body);
  const int64_t ttl_s = fields.integer("ttl", 0, max_pin_ttl_s).value_or(default_ttl_s);
  const auto tenant = fields.string("tenant", limits.max_salt_bytes);
  if (fields.has("prompt") == fields.has("messages")) return bad_request("say one of prompt and messages");
  if (fields.failed()) return *fields.error();
  Json asked = body;
  for (const char* name :
       {"ttl", "tenant", "cache_pin_ttl", "stream", "max_completion_tokens", "max_new_tokens", "n_predict", "n"})
    asked.erase(name);
  asked["max_tokens"] = 0;
  const bool chat = fields.has("messages");
  // The assistant's turn begins in the next request's prompt, maybe after other messages.
  if (chat && !fields.has("add_generation_prompt")) asked["add_generation_prompt"] = false;
  ReadResult read = chat ? read_chat_request(asked, model, limits) : read_completion_request(asked, model, limits);
  GenerationRequest* request = std::get_if<GenerationRequest>(&read);
  if (request == nullptr) return read;
  if (request->prompts.size() != 1) return bad_request("one prompt can be pinned at a time", "prompt");
  request->engine.pin_for = std::chrono::seconds(ttl_s);
  request->engine.pin_or_end = true;  // nobody computes what cannot be pinned
  request->reply.pin_ttl_s = ttl_s;
  if (tenant) caller.cache_tenant = *tenant;
  return read;
}

}  // namespace tidemill
