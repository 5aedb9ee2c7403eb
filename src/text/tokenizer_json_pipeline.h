// The stages of a tokenizer.json around its model: normalizer, pre_tokenizer and decoder.
//
// Each function adds what the JSON object says to the parts; a kind that is not supported is an Error that names it.
#pragma once

#include "text/json_fields.h"
#include "text/tokenizer_parts.h"

namespace tidemill {

// null or absent objects mean "none" and are not passed in.
Result<void> read_normalizer(const JsonPlace& place, TokenizerParts& parts);
Result<void> read_pre_tokenizer(const JsonPlace& place, TokenizerParts& parts);
// Sets strips_leading_blank.
Result<void> read_decoder(const JsonPlace& place, TokenizerParts& parts);

// Does the object, or a member of the sequence that it is, have this type?
bool has_stage(const nlohmann::json& stage, std::string_view type);

}  // namespace tidemill
