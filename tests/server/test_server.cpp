#include "server/test_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <thread>
#include <unordered_map>

#include "base/metadata.h"
#include "text/vocabulary.h"

namespace tidemill::testing {

std::unique_ptr<Tokenizer> byte_tokenizer(bool with_bos) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(byte_level_text(std::string(1, static_cast<char>(byte))));
  for (const char* text : {"AB", "CDE", "GH", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}) texts.push_back(text);
  std::vector<int64_t> types(texts.size(), 1);
  for (size_t i = bos; i < types.size(); ++i) types[i] = 3;
  Metadata metadata;
  metadata.set("tokenizer.ggml.model", std::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", std::string("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", Metadata::Array{"str", texts});
  metadata.set("tokenizer.ggml.token_type", Metadata::Array{"i32", types});
  metadata.set("tokenizer.ggml.merges", Metadata::Array{"str", std::vector<std::string>{}});
  if (with_bos) metadata.set("tokenizer.ggml.bos_token_id", int64_t{bos});
  metadata.set("tokenizer.ggml.eos_token_id", int64_t{eos_id});
  metadata.set("tokenizer.ggml.add_bos_token", with_bos);
  auto tokenizer = make_tokenizer(metadata);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return *std::move(tokenizer);
}

std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

void Script::set(std::vector<std::vector<TokenId>> scripts) {
  const std::lock_guard lock(mutex_);
  scripts_ = std::move(scripts);
}

void Script::say(std::string_view text) {
  std::vector<TokenId> tokens = bytes_of(text);
  tokens.push_back(eos_id);
  set({std::move(tokens)});
}

TokenId Script::token(uint64_t seed, int32_t output_position) const {
  const std::lock_guard lock(mutex_);
  const std::vector<TokenId>& script = scripts_[seed % scripts_.size()];
  return static_cast<size_t>(output_position) < script.size() ? script[static_cast<size_t>(output_position)] : eos_id;
}

namespace {

class ScriptExecutor final : public Executor {
 public:
  explicit ScriptExecutor(Script& script) : script_(script) {}

  StepResult execute(const StepPlan& plan) override {
    if (const int delay = script_.step_delay_us) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    script_.num_rows += plan.num_rows();
    for (const SlotId slot : plan.ended) states_.erase(slot);
    StepResult result;
    for (const PlannedSequence& planned : plan.sequences) result.sequences.push_back(run(planned));
    return result;
  }

 private:
  struct State {
    std::vector<TokenId> tokens;
    int32_t num_prompt_tokens = 0;
    SamplingParams sampling;
  };

  static Draw draw_of(TokenId token, int32_t num_top) {
    Draw draw{.token = token, .logprob = -0.5f, .rank = 1, .top = {}};
    for (int32_t i = 0; i < num_top; ++i)
      draw.top.push_back({static_cast<TokenId>((token + i) % 256), -0.5f - static_cast<float>(i), i + 1});
    return draw;
  }

  SequenceResult run(const PlannedSequence& planned) {
    if (planned.start)
      states_[planned.slot] = {planned.start->tokens, planned.start->num_prompt_tokens, planned.start->sampling};
    State& state = states_.at(planned.slot);
    state.tokens.insert(state.tokens.end(), planned.new_tokens.begin(), planned.new_tokens.end());
    SequenceResult result;
    const int32_t end = planned.first_position + planned.num_rows;
    for (int32_t p = planned.first_position; planned.prompt_logprobs >= 0 && p < end; ++p)
      if (p + 1 < static_cast<int32_t>(state.tokens.size()))
        result.prompt_logprobs.push_back(draw_of(state.tokens[static_cast<size_t>(p) + 1], planned.prompt_logprobs));
    if (planned.draw)
      result.draw = draw_of(script_.token(state.sampling.seed, end - state.num_prompt_tokens), state.sampling.logprobs);
    return result;
  }

  Script& script_;
  std::unordered_map<SlotId, State> states_;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Milliseconds left, not below zero.
int left(std::chrono::steady_clock::time_point end) {
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return std::max<int>(0, static_cast<int>(rest.count()));
}

std::optional<std::string> join_chunks(std::string_view bytes) {
  std::string body;
  while (true) {
    const size_t line = bytes.find("\r\n");
    if (line == std::string_view::npos) return std::nullopt;
    const size_t size = std::stoul(std::string(bytes.substr(0, line)), nullptr, 16);
    bytes.remove_prefix(line + 2);
    if (bytes.size() < size + 2) return std::nullopt;
    body += bytes.substr(0, size);
    bytes.remove_prefix(size + 2);
    if (size == 0) return body;
  }
}

// Fills in what is there; complete when all of it is.
void parse_reply(std::string_view bytes, bool ended, Reply& reply) {
  const size_t head_end = bytes.find("\r\n\r\n");
  if (head_end == std::string_view::npos) return;
  std::string_view head = bytes.substr(0, head_end);
  reply.status = std::atoi(std::string(head.substr(9, 3)).c_str());
  reply.headers.clear();
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;) {
    const size_t next = head.find("\r\n", at + 2);
    const std::string_view line = head.substr(at + 2, next == std::string_view::npos ? next : next - at - 2);
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos)
      reply.headers[lower(std::string(line.substr(0, colon)))] = line.substr(colon + 2);
    at = next;
  }
  const std::string_view rest = bytes.substr(head_end + 4);
  if (reply.headers.contains("content-length")) {
    const size_t size = std::stoul(reply.headers["content-length"]);
    reply.body = rest.substr(0, size);
    reply.complete = rest.size() >= size;
  } else if (reply.headers["transfer-encoding"] == "chunked") {
    if (auto body = join_chunks(rest)) {
      reply.body = *body;
      reply.complete = true;
    }
  } else {
    reply.body = rest;
    reply.complete = ended || reply.status == 204;
  }
}

}  // namespace

std::unique_ptr<Executor> script_executor(Script& script) {
  return std::make_unique<ScriptExecutor>(script);
}

nlohmann::json Reply::json() const {
  return nlohmann::json::parse(body);
}

std::vector<std::string> Reply::events() const {
  std::vector<std::string> events;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an event without its empty line: " << body.substr(at);
      break;
    }
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    events.push_back(event.substr(6));
  }
  return events;
}

Socket::Socket(uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

Socket::Socket(const std::string& unix_path) {
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  unix_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

Socket::~Socket() {
  close();
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Socket::reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  close();
}

void Socket::half_close() {
  ::shutdown(fd_, SHUT_WR);
}

bool Socket::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

Reply Socket::read_reply(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  Reply reply;
  bool ended = false;
  std::string bytes = std::move(buffer_);
  buffer_.clear();
  while (true) {
    parse_reply(bytes, ended, reply);
    if (reply.status == 100) {
      bytes.erase(0, bytes.find("\r\n\r\n") + 4);
      reply = {};
      continue;
    }
    if (reply.complete || ended) break;
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, left(end)) <= 0) break;
    char piece[65536];
    const ssize_t got = ::recv(fd_, piece, sizeof(piece), 0);
    if (got <= 0) {
      ended = true;
    } else {
      bytes.append(piece, static_cast<size_t>(got));
    }
  }
  // Pipelined replies with a length leave the next one in the buffer.
  if (reply.complete && reply.headers.contains("content-length")) {
    const size_t used = bytes.find("\r\n\r\n") + 4 + reply.body.size();
    buffer_ = bytes.substr(used);
  }
  return reply;
}

std::string Socket::read_some(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::string bytes;
  while (left(end) > 0) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, left(end)) <= 0) break;
    char piece[65536];
    const ssize_t got = ::recv(fd_, piece, sizeof(piece), 0);
    if (got <= 0) break;
    bytes.append(piece, static_cast<size_t>(got));
  }
  return bytes;
}

bool Socket::closed_within(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, left(end)) <= 0) return false;
    char piece[65536];
    if (::recv(fd_, piece, sizeof(piece), 0) <= 0) return true;
  }
}

TestOptions::TestOptions() {
  engine.groups = {{.tail_bytes = 1024, .sealed_bytes = 1024, .same_format = true, .window_tokens = 0}};
  engine.block_size_tokens = 16;
  engine.kv_budget_bytes = 1024 * 256;
  engine.max_model_len_tokens = 1024;
  engine.max_num_seqs = 16;
  engine.max_num_batched_tokens = 128;
  engine.vocabulary_end_ids = {eos_id};
  engine.seed = 1;
  server.listen.port = 0;
  server.version = "test";
  chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
}

TestServer::TestServer(TestOptions options)
    : options_(std::move(options)), tokenizer_(byte_tokenizer(options_.with_bos)) {
  auto parsed = ChatTemplate::parse(options_.chat_template);
  EXPECT_TRUE(parsed.ok());
  chat_template_.emplace(*std::move(parsed));
  auto server = ApiServer::make(options_.server);
  EXPECT_TRUE(server.ok()) << (server.ok() ? "" : server.error().message);
  server_ = *std::move(server);
  const Result<void> started = server_->start();
  EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().message);
  if (options_.ready) make_ready();
}

void TestServer::make_ready() {
  engine_ = std::make_unique<Engine>(options_.engine, script_executor(script), clock_, server_->events());
  engine_->start();
  ServedModel model;
  model.names = options_.names;
  model.tokenizer = tokenizer_.get();
  model.chat_template = &*chat_template_;
  model.thinking = find_thinking_marks(options_.chat_template);
  model.max_model_len_tokens = options_.engine.max_model_len_tokens;
  model.default_sampling.end_token_ids = {eos_id};
  model.kv = options_.kv;
  model.created_unix_s = 1700000000;
  server_->set_ready(*engine_, std::move(model));
}

TestServer::~TestServer() {
  server_->stop();
}

std::string post_text(const std::string& path, const std::string& body, const std::string& headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                     path, body.size(), headers, body);
}

Reply TestServer::get(const std::string& path, const std::string& headers) {
  Socket socket(port());
  socket.send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers));
  return socket.read_reply();
}

Reply TestServer::post(const std::string& path, const std::string& body, const std::string& headers) {
  Socket socket(port());
  socket.send(post_text(path, body, headers));
  return socket.read_reply();
}

bool TestServer::alive() {
  if (get("/health").status != 200) return false;
  const Reply reply = post("/tokenize", std::string(R"({"content":"canary"})"));
  return reply.status == 200 && reply.json()["tokens"] == nlohmann::json(bytes_of("canary"));
}

bool TestServer::quiet() {
  const bool quiet = eventually([this] {
    const EngineStats stats = engine_->stats();
    return stats.num_requests_running == 0 && stats.num_requests_waiting == 0 && stats.num_blocks_held == 0 &&
           server_->num_open_requests() == 0;
  });
  if (quiet) engine_->check_integrity();
  return quiet;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace tidemill::testing
