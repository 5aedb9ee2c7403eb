// Cutting and rewriting of strings, shared by methods and filters. Marks of origin follow the bytes.
#pragma once

#include <vector>

#include "text/jinja/value.h"

namespace tidemill::jinja {

enum class Sides { both, left, right };

// Without the white space, or without any of `chars` (may be null), at its ends.
Text stripped(const Text& text, Sides sides, const Text* chars);
// Python's str.split and rsplit; a null separator means runs of white space, a negative limit means none.
std::vector<Text> split_text(Runtime& runtime, const Text& text, const Text* separator, Integer limit, bool from_right);
std::vector<Text> lines_of(Runtime& runtime, const Text& text, bool keep_ends);
// At most `limit` occurrences of `old_bytes`, all if negative; an empty one stands between all characters.
Text replaced(Runtime& runtime, const Text& text, std::string_view old_bytes, const Text& new_text, Integer limit);
// Whether there are cased characters and wanted() holds for all of them.
bool has_only_case(Runtime& runtime, const Text& text, bool (*wanted)(int32_t));

}  // namespace tidemill::jinja
