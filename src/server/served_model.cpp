#include "server/served_model.h"

namespace tidemill {

std::optional<ThinkingMarks> find_thinking_marks(const std::string& template_source) {
  for (const auto& [open, close] : {std::pair("<think>", "</think>"), std::pair("[THINK]", "[/THINK]")}) {
    if (template_source.find(open) != std::string::npos && template_source.find(close) != std::string::npos)
      return ThinkingMarks{open, close};
  }
  return std::nullopt;
}

}  // namespace tidemill
