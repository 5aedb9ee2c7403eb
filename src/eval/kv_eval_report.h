// What an evaluation of KV formats found, as tables, as JSON, as a picture and as one page of HTML.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/kv_fidelity.h"
#include "eval/kv_eval.h"

namespace tidemill {

// The strictest level whose gate the format passes in every text and length that was measured, against the floor of the
// same run; nothing where it passes none, or without texts or floor. An exact format is exact.
std::optional<KvFidelity> fidelity_of(const FormatFigures& format, const FormatFigures* floor);

// Tables for a terminal: all formats, by context length, by task.
std::string kv_eval_tables(const KvEvalResult& result);
// {"reference", "formats": [...]}: every figure.
nlohmann::ordered_json json_of(const KvEvalResult& result);
nlohmann::ordered_json json_of(const EvalData& data);
// Size against loss.
std::string kv_eval_picture(const KvEvalResult& result, const std::string& subtitle);

// A page that stands alone: tables, the picture, how it was measured, its limits, and `json`, the whole result with its
// head, inside. Nothing is loaded from elsewhere.
std::string kv_eval_page(const KvEvalResult& result, const std::string& model_name, const nlohmann::ordered_json& json);

}  // namespace tidemill
