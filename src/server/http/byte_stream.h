// An accepted connection's bytes, whatever carries them: TCP, a Unix socket, or TLS over TCP.
//
// I/O thread only. At most one read and one write may be under way; a handler is called exactly once, never from
// inside the call that started the operation. close() ends both with an error and may be called again.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace tidemill {

using AnySocket = boost::asio::generic::stream_protocol::socket;

class ByteStream {
 public:
  using Handler = std::function<void(const boost::system::error_code&, size_t)>;
  virtual ~ByteStream() = default;
  virtual void handshake(std::function<void(const boost::system::error_code&)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Handler done) = 0;
  virtual void write_some(boost::asio::const_buffer from, Handler done) = 0;
  // Tells the other side that nothing more comes; reading goes on.
  virtual void shutdown_send() = 0;
  virtual void close() = 0;
};

std::unique_ptr<ByteStream> plain_stream(AnySocket socket);

// Server side of TLS 1.2 and later. Immutable after load; shared by all connections.
class TlsIdentity {
 public:
  // PEM files. The error says which of the two cannot be used.
  static Result<std::shared_ptr<TlsIdentity>> load(const std::string& certificate_file, const std::string& key_file);
  ~TlsIdentity();
  std::unique_ptr<ByteStream> wrap(AnySocket socket);

 private:
  struct Context;
  explicit TlsIdentity(std::unique_ptr<Context> context);
  std::unique_ptr<Context> context_;
};

}  // namespace tidemill
