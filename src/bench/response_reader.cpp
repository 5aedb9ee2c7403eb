#include "bench/response_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/printable.h"

namespace tidemill {
namespace {

constexpr size_t most_head_bytes = 64 << 10;
constexpr size_t most_line_bytes = 256;
constexpr size_t most_event_bytes = 16 << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <typename Number>
bool parse_whole(std::string_view text, int base, Number& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

Result<void> ResponseReader::read_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return error("a header '{}' without a colon", printable(line));
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (same_word(name, "content-length")) {
    uint64_t length = 0;
    if (!parse_whole(value, 10, length)) return error("a Content-Length of '{}'", printable(value));
    length_bytes_ = length;
  } else if (same_word(name, "transfer-encoding")) {
    if (!same_word(value, "chunked")) return error("the transfer coding '{}'", printable(value));
    chunked_ = true;
  } else if (same_word(name, "server")) {
    server_ = printable(value);
  }
  return {};
}

Result<void> ResponseReader::read_head(std::string_view head) {
  const std::string_view first = head.substr(0, head.find("\r\n"));
  if (!first.starts_with("HTTP/1.") || first.size() < 12 || !parse_whole(first.substr(9, 3), 10, status_)) {
    return error("the answer '{}', which is no HTTP", printable(first));
  }
  std::string_view rest = head.substr(std::min(head.size(), first.size() + 2));
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
    if (Result<void> done = read_field(line); !done) return done;
  }
  if (chunked_) {
    state_ = State::chunk_size;
  } else if (length_bytes_) {
    left_bytes_ = *length_bytes_;
    state_ = left_bytes_ == 0 ? State::complete : State::length_body;
  } else {
    state_ = State::open_body;
  }
  return {};
}

// The next line without its end, once all of it is there; what was used is removed from `bytes`.
Result<std::optional<std::string>> ResponseReader::take_line(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  const std::string_view part = bytes.substr(0, end);
  if (pending_.size() + part.size() > most_line_bytes)
    return error("a chunk's head of more than {} bytes", most_line_bytes);
  pending_ += part;
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  if (end == std::string_view::npos) return std::optional<std::string>();
  if (pending_.ends_with('\r')) pending_.pop_back();
  return std::optional<std::string>(std::exchange(pending_, {}));
}

Result<void> ResponseReader::read_chunk_size(std::string_view line) {
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  if (!parse_whole(digits, 16, left_bytes_)) return error("a chunk size of '{}'", printable(digits));
  state_ = left_bytes_ == 0 ? State::trailer : State::chunk_data;
  return {};
}

void ResponseReader::take_body(std::string_view& bytes) {
  const size_t size =
      state_ == State::open_body ? bytes.size() : static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_bytes_));
  on_body_(bytes.substr(0, size));
  bytes.remove_prefix(size);
  if (state_ == State::open_body) return;
  left_bytes_ -= size;
  if (left_bytes_ > 0) return;
  state_ = state_ == State::length_body ? State::complete : State::chunk_end;
}

Result<void> ResponseReader::feed(std::string_view bytes) {
  if (state_ == State::head) {
    pending_ += bytes;
    const size_t end = pending_.find("\r\n\r\n");
    if (std::min(end, pending_.size()) > most_head_bytes) return error("a head of more than {} bytes", most_head_bytes);
    if (end == std::string::npos) return {};
    const std::string all = std::exchange(pending_, {});
    if (Result<void> done = read_head(std::string_view(all).substr(0, end)); !done) return done;
    return feed(std::string_view(all).substr(end + 4));
  }
  while (!bytes.empty() && state_ != State::complete) {
    if (state_ == State::length_body || state_ == State::open_body || state_ == State::chunk_data) {
      take_body(bytes);
      continue;
    }
    Result<std::optional<std::string>> line = take_line(bytes);
    if (!line) return line.error();
    if (!*line) return {};
    if (state_ == State::chunk_size) {
      if (Result<void> done = read_chunk_size(**line); !done) return done;
    } else if (state_ == State::chunk_end) {
      if (!(*line)->empty()) return error("a chunk that is longer than it says");
      state_ = State::chunk_size;
    } else if ((*line)->empty()) {
      state_ = State::complete;
    }
  }
  return {};
}

Result<void> ResponseReader::finish() {
  if (state_ == State::open_body) state_ = State::complete;
  if (state_ != State::complete) return error("the connection ended before the answer did");
  return {};
}

Result<void> EventReader::feed(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view part = text.substr(0, end);
    if (pending_.size() + part.size() > most_event_bytes)
      return error("an event of more than {} bytes", most_event_bytes);
    if (end == std::string_view::npos) {
      pending_ += part;
      return {};
    }
    text.remove_prefix(end + 1);
    std::string whole;
    std::string_view line = part;
    if (!pending_.empty()) {
      whole = std::exchange(pending_, {}) + std::string(part);
      line = whole;
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) on_data_(line.substr(line.starts_with("data: ") ? 6 : 5));
  }
  return {};
}

}  // namespace tidemill
