// Fields that users of other servers know and that mean something we do not do. Ignoring one silently would give an
// answer that is not what was asked for, so it is refused by name, unless its value is the one that asks for nothing.
#include <cmath>
#include <initializer_list>

#include "server/openai/generation_request.h"

namespace tidemill {
namespace {

// What a field may say without asking for anything; null always may.
enum class Neutral { nothing, zero, one, minus_one, no, empty, zero_or_less };

struct Unsupported {
  const char* name;
  Neutral neutral;
};

constexpr std::initializer_list<Unsupported> unsupported = {
    // OpenAI
    {"best_of", Neutral::one},
    {"suffix", Neutral::empty},
    {"functions", Neutral::empty},
    {"function_call", Neutral::nothing},
    {"audio", Neutral::nothing},
    {"prediction", Neutral::nothing},
    {"web_search_options", Neutral::nothing},
    {"store", Neutral::no},
    // vLLM
    {"use_beam_search", Neutral::no},
    {"length_penalty", Neutral::one},
    {"logprob_token_ids", Neutral::empty},
    {"structured_outputs", Neutral::nothing},
    {"guided_json", Neutral::nothing},
    {"guided_regex", Neutral::nothing},
    {"guided_choice", Neutral::nothing},
    {"guided_grammar", Neutral::nothing},
    {"thinking_token_budget", Neutral::nothing},
    {"repetition_detection", Neutral::nothing},
    {"stream_interval", Neutral::one},
    {"kv_transfer_params", Neutral::nothing},
    {"vllm_xargs", Neutral::empty},
    // llama-server
    {"id_slot", Neutral::minus_one},
    {"n_keep", Neutral::zero},
    {"n_discard", Neutral::zero},
    {"n_probs", Neutral::zero},
    {"post_sampling_probs", Neutral::no},
    {"min_keep", Neutral::zero},
    {"samplers", Neutral::empty},
    {"dynatemp_range", Neutral::zero},
    {"typical_p", Neutral::one},
    {"top_n_sigma", Neutral::zero_or_less},
    {"xtc_probability", Neutral::zero},
    {"dry_multiplier", Neutral::zero},
    {"mirostat", Neutral::zero},
    {"adaptive_target", Neutral::zero_or_less},
    {"repeat_penalty", Neutral::one},
    {"grammar", Neutral::empty},
    {"grammar_lazy", Neutral::no},
    {"grammar_triggers", Neutral::empty},
    {"json_schema", Neutral::nothing},
    {"lora", Neutral::empty},
    {"return_tokens", Neutral::no},
    {"t_max_predict_ms", Neutral::zero_or_less},
    {"response_fields", Neutral::empty},
    {"reasoning_control", Neutral::no},
    {"verbose", Neutral::no},
    // SGLang
    {"stop_regex", Neutral::empty},
    {"regex", Neutral::nothing},
    {"ebnf", Neutral::nothing},
    {"return_logprob", Neutral::no},
    {"top_logprobs_num", Neutral::zero},
};

bool asks_for_nothing(const Json& value, Neutral neutral) {
  const bool number = value.is_number();
  switch (neutral) {
    case Neutral::nothing:
      return false;
    case Neutral::zero:
      return number && value.get<double>() == 0;
    case Neutral::one:
      return number && value.get<double>() == 1;
    case Neutral::minus_one:
      return number && value.get<double>() == -1;
    case Neutral::zero_or_less:
      return number && value.get<double>() <= 0;
    case Neutral::no:
      return value.is_boolean() && !value.get<bool>();
    case Neutral::empty:
      return (value.is_string() && value.get_ref<const std::string&>().empty()) ||
             ((value.is_array() || value.is_object()) && value.empty());
  }
  return false;
}

std::optional<ApiError> check_response_format(const Json& format) {
  if (!format.is_object()) return bad_request("response_format must be an object", "response_format");
  const auto type = format.find("type");
  if (type == format.end() || !type->is_string())
    return bad_request("response_format.type must be a string", "response_format");
  if (*type == "text") return std::nullopt;
  return not_supported("response_format", "only the type \"text\" is");
}

std::optional<ApiError> check_tool_choice(const Json& choice) {
  if (choice == "none" || choice == "auto") return std::nullopt;
  return not_supported("tool_choice", "only \"none\" and \"auto\" are");
}

}  // namespace

std::optional<ApiError> find_unsupported_field(const Json& body) {
  for (const Unsupported& field : unsupported) {
    const auto value = body.find(field.name);
    if (value == body.end() || value->is_null() || asks_for_nothing(*value, field.neutral)) continue;
    return not_supported(field.name, {});
  }
  if (const auto side = body.find("truncation_side"); side != body.end() && !side->is_null() && *side != "left")
    return not_supported("truncation_side", "a prompt is cut at its left");
  if (const auto kinds = body.find("modalities");
      kinds != body.end() && !kinds->is_null() && *kinds != Json::array({"text"}))
    return not_supported("modalities", "only [\"text\"] is");
  if (const auto format = body.find("response_format"); format != body.end() && !format->is_null())
    if (std::optional<ApiError> error = check_response_format(*format)) return error;
  if (const auto choice = body.find("tool_choice"); choice != body.end() && !choice->is_null())
    return check_tool_choice(*choice);
  return std::nullopt;
}

}  // namespace tidemill
