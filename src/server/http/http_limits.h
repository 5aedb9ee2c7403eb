// What a client may send, and how long it may take, apart from the connection that enforces it.
//
// Plain values, copied at start. Light on purpose: the configuration of the server needs it without Boost.Asio.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tidemill {

struct HttpLimits {
  size_t max_header_bytes = 64 << 10;
  uint64_t max_body_bytes = 16 << 20;
  size_t max_held_bytes = 1 << 30;           // of the bodies of all requests under way; beyond it 503
  size_t max_output_buffer_bytes = 4 << 20;  // of one connection; beyond it the client counts as gone
  size_t max_pipelined_bytes = 64 << 10;
  std::chrono::milliseconds header_timeout{10000};  // from connecting, or a request's first byte, to its last header
  std::chrono::milliseconds body_timeout{60000};    // to the last byte of its body
  std::chrono::milliseconds idle_timeout{75000};    // between requests
  std::chrono::milliseconds write_timeout{30000};   // without the client taking a byte
  std::chrono::milliseconds ping_interval{5000};    // 0 = no pings
  size_t max_connections = 0;                       // 0 = what the descriptor limit allows
};

}  // namespace tidemill
