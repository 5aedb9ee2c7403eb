#include "text/jinja/text.h"

namespace tidemill::jinja {

size_t Text::changes_up_to(size_t offset) const {
  if (change_points_.empty()) return 0;
  return std::upper_bound(change_points_.begin(), change_points_.end(), offset) - change_points_.begin();
}

bool Text::trusted_at(size_t offset) const {
  return first_trusted_ != (changes_up_to(offset) % 2 == 1);
}

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_trusted_ = trusted;
  } else if (last_trusted() != trusted) {
    change_points_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other, size_t begin, size_t end) {
  other.for_each_run(begin, end, [this](std::string_view run, bool trusted) { append(run, trusted); });
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

}  // namespace tidemill::jinja
