// An HTTP/1.1 response, taken apart while its bytes arrive in any pieces.
//
// What the body holds is handed over as it comes, chunks joined. Bodies end with their Content-Length, their last chunk
// or the connection. Made for what servers answer to a benchmark: bounded heads, no trailers of interest, no
// compression. A broken response is an Error at the byte that breaks it; nothing is sized by what it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemill {

class ResponseReader {
 public:
  explicit ResponseReader(std::function<void(std::string_view)> on_body) : on_body_(std::move(on_body)) {}

  Result<void> feed(std::string_view bytes);
  // The other side closed: an Error where the body was to be longer.
  Result<void> finish();

  int status() const { return status_; }  // 0 = the head is not there yet
  bool complete() const { return state_ == State::complete; }
  const std::string& server() const { return server_; }  // the field of that name

 private:
  enum class State : uint8_t { head, length_body, open_body, chunk_size, chunk_data, chunk_end, trailer, complete };

  Result<void> read_head(std::string_view head);
  Result<void> read_field(std::string_view line);
  Result<void> read_chunk_size(std::string_view line);
  Result<std::optional<std::string>> take_line(std::string_view& bytes);
  void take_body(std::string_view& bytes);

  std::function<void(std::string_view)> on_body_;
  State state_ = State::head;
  int status_ = 0;
  std::string pending_;  // of a head or a line that is not complete
  std::string server_;
  bool chunked_ = false;
  std::optional<uint64_t> length_bytes_;
  uint64_t left_bytes_ = 0;  // of the body or the chunk
};

// The data of server-sent events, out of text that arrives in any pieces (one line of data per event, as the OpenAI API
// has it). Lines are bounded.
class EventReader {
 public:
  explicit EventReader(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}
  Result<void> feed(std::string_view text);

 private:
  std::function<void(std::string_view)> on_data_;
  std::string pending_;
};

}  // namespace tidemill
