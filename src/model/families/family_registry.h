// The families that can be run, in one explicit table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/families/family.h"
#include "model/model.h"

namespace tidemill {

struct Family {
  // As files write it: general.architecture of a GGUF, or model_type of a config.json.
  std::string_view name;
  // Any Model may come out: a Decoder for all families of today.
  Result<std::unique_ptr<Model>> (*load)(const FamilyInputs& inputs);
};

std::span<const Family> all_families();

// An unknown family is an Error with its name and the list of known ones.
Result<const Family*> find_family(std::string_view name);

}  // namespace tidemill
