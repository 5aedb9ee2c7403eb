// A step's plan and result, written down and read back: for recordings, replays and bug reports.
//
// One JSON object each, without a field that the value leaves empty. Reading checks kinds and ranges, so a recording
// from elsewhere is refused with a sentence that names the field, and nothing is sized by a number in it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "engine/step_plan.h"

namespace tidemill {

nlohmann::json plan_to_json(const StepPlan& plan);
Result<StepPlan> plan_from_json(const nlohmann::json& json);

nlohmann::json result_to_json(const StepResult& result);
Result<StepResult> result_from_json(const nlohmann::json& json);

}  // namespace tidemill
