#include "server/http/byte_stream.h"

#include <boost/asio/ssl.hpp>

namespace tidemill {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(AnySocket socket) : socket_(std::move(socket)) {}
  void handshake(std::function<void(const error_code&)> done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer into, Handler done) override { socket_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Handler done) override { socket_.async_write_some(from, std::move(done)); }
  void shutdown_send() override {
    error_code ignored;
    socket_.shutdown(AnySocket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  AnySocket socket_;
};

class TlsStream final : public ByteStream {
 public:
  TlsStream(AnySocket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(std::function<void(const error_code&)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer into, Handler done) override { stream_.async_read_some(into, std::move(done)); }
  void write_some(asio::const_buffer from, Handler done) override { stream_.async_write_some(from, std::move(done)); }
  void shutdown_send() override {
    // close_notify: clients tell a whole reply from a cut one by it. The alert goes out through OpenSSL's own buffers,
    // so the asynchronous form is needed even though nobody waits for the answer.
    if (SSL_in_init(stream_.native_handle())) return close();
    stream_.async_shutdown([](const error_code&) {});
  }
  void close() override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  asio::ssl::stream<AnySocket> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> plain_stream(AnySocket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

struct TlsIdentity::Context {
  asio::ssl::context context{asio::ssl::context::tls_server};
};

TlsIdentity::TlsIdentity(std::unique_ptr<Context> context) : context_(std::move(context)) {}
TlsIdentity::~TlsIdentity() = default;

Result<std::shared_ptr<TlsIdentity>> TlsIdentity::load(const std::string& certificate_file,
                                                       const std::string& key_file) {
  auto context = std::make_unique<Context>();
  error_code failed;
  context->context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                               asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                               asio::ssl::context::no_tlsv1_1);
  context->context.use_certificate_chain_file(certificate_file, failed);
  if (failed) return error("the TLS certificate file {} cannot be used: {}", certificate_file, failed.message());
  context->context.use_private_key_file(key_file, asio::ssl::context::pem, failed);
  if (failed) return error("the TLS key file {} cannot be used: {}", key_file, failed.message());
  if (SSL_CTX_check_private_key(context->context.native_handle()) != 1)
    return error("the TLS key in {} does not belong to the certificate in {}", key_file, certificate_file);
  return std::shared_ptr<TlsIdentity>(new TlsIdentity(std::move(context)));
}

std::unique_ptr<ByteStream> TlsIdentity::wrap(AnySocket socket) {
  return std::make_unique<TlsStream>(std::move(socket), context_->context);
}

}  // namespace tidemill
