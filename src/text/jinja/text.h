// A string in which every byte knows who wrote it.
//
// Trusted bytes were written by the template (its literals, bos_token, the braces of tojson); untrusted bytes came from
// the request. The tokenizer looks for control tokens in trusted runs only, so a user cannot close his own turn.
// Every operation of the engine that cuts, joins or rewrites strings keeps the marks of the bytes it takes.
//
// Invariants: valid UTF-8 if it was built from valid UTF-8; change_points_ is strictly increasing, inside (0, size).
// A plain value: copyable, owned by whoever holds it, no views. Offsets and sizes are in bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemill::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), first_trusted_(trusted) {}

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // The mark of one byte; the mark of the last byte is also that of the end, so that an appended neighbour can copy it.
  bool trusted_at(size_t offset) const;
  bool last_trusted() const { return first_trusted_ != (change_points_.size() % 2 == 1); }

  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  Text slice(size_t begin, size_t end) const;

  // Calls visit(std::string_view bytes, bool trusted) for each maximal run of [begin, end), in order.
  template <typename Visit>
  void for_each_run(size_t begin, size_t end, Visit visit) const;
  template <typename Visit>
  void for_each_run(Visit visit) const {
    for_each_run(0, size(), visit);
  }

 private:
  size_t changes_up_to(size_t offset) const;

  std::string bytes_;
  bool first_trusted_ = true;
  std::vector<size_t> change_points_;  // where the mark flips; empty for a string of one origin, the common case
};

template <typename Visit>
void Text::for_each_run(size_t begin, size_t end, Visit visit) const {
  size_t change = changes_up_to(begin);
  while (begin < end) {
    const size_t run_end = change < change_points_.size() ? std::min(change_points_[change], end) : end;
    visit(view().substr(begin, run_end - begin), first_trusted_ != (change % 2 == 1));
    begin = run_end;
    ++change;
  }
}

}  // namespace tidemill::jinja
