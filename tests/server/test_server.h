// A whole server without a model: a byte-level vocabulary, an executor that says what a script tells it, and a client
// made of plain sockets.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "server/api_server.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tidemill::testing {

// 256 bytes (token = byte), then words, then control tokens.
inline constexpr TokenId ab_token = 256, cde_token = 257, gh_token = 258, f_token = 'F';
inline constexpr TokenId bos = 259, eos_id = 260, im_start_id = 261, im_end_id = 262;
inline constexpr size_t vocab_size = 263;

std::unique_ptr<Tokenizer> byte_tokenizer(bool with_bos = true);
std::vector<TokenId> bytes_of(std::string_view text);

// Emits script number seed % scripts, token by token, then EOS for ever. The scripts may be changed between requests.
class Script {
 public:
  void set(std::vector<std::vector<TokenId>> scripts);
  void say(std::string_view text);  // one byte a token, then EOS
  TokenId token(uint64_t seed, int32_t output_position) const;
  std::atomic<int> step_delay_us{0};
  std::atomic<int64_t> num_rows{0};

 private:
  mutable std::mutex mutex_;
  std::vector<std::vector<TokenId>> scripts_{{eos_id}};
};

std::unique_ptr<Executor> script_executor(Script& script);

// An HTTP reply as it came, chunks joined.
struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;
  nlohmann::json json() const;
  std::vector<std::string> events() const;  // the data of each server-sent event
};

class Socket {
 public:
  explicit Socket(uint16_t port);
  explicit Socket(const std::string& unix_path);
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.fd_), buffer_(std::move(other.buffer_)) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  bool connected() const { return fd_ >= 0; }
  bool send(std::string_view bytes);
  // Until the reply is complete, the connection ends or the time is up.
  Reply read_reply(std::chrono::milliseconds limit = std::chrono::seconds(10));
  // What came within the time.
  std::string read_some(std::chrono::milliseconds limit);
  // The other side closed within the time.
  bool closed_within(std::chrono::milliseconds limit);
  void close();
  void reset();  // RST instead of FIN
  void half_close();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::string buffer_;
};

struct TestOptions {
  EngineConfig engine;
  ServerConfig server;
  std::string chat_template;
  bool with_bos = true;
  bool ready = true;
  std::vector<std::string> names{"tiny"};
  KvContract kv;
  TestOptions();
};

class TestServer {
 public:
  explicit TestServer(TestOptions options = {});
  ~TestServer();
  uint16_t port() const { return server_->port(); }
  Script script;
  ApiServer& server() { return *server_; }
  Engine& engine() { return *engine_; }
  void make_ready();
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  Reply get(const std::string& path, const std::string& headers = {});
  Reply post(const std::string& path, const std::string& body, const std::string& headers = {});
  Reply post(const std::string& path, const nlohmann::json& body, const std::string& headers = {}) {
    return post(path, body.dump(), headers);
  }
  Socket connect() { return Socket(port()); }
  // ALIVE: healthy, and a fixed request gives its fixed answer.
  bool alive();
  // QUIET: no request, no block held, waited for at most two seconds.
  bool quiet();

 private:
  TestOptions options_;
  SystemClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<Engine> engine_;
};

std::string post_text(const std::string& path, const std::string& body, const std::string& headers = {});
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(2));

}  // namespace tidemill::testing
