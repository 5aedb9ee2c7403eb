#include "bench/load_client.h"

#include <time.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "bench/response_reader.h"

namespace tidemill {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Code = boost::system::error_code;
using Json = nlohmann::json;
using std::chrono::steady_clock;

constexpr size_t read_bytes = 16 << 10;
constexpr size_t most_error_bytes = 4 << 10;
constexpr std::chrono::milliseconds tick{200};

std::string path_of(const LoadOptions& options) {
  const std::string path = options.url.path.ends_with("/v1") ? options.url.path : options.url.path + "/v1";
  return path + (options.chat ? "/chat/completions" : "/completions");
}

std::string host_of(const HttpUrl& url) {
  return (url.host.find(':') != std::string::npos ? "[" + url.host + "]" : url.host) + ":" + url.port;
}

double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What all streams of a run share.
struct Run {
  Run(std::span<const BenchRequest> of, const LoadOptions& by) : requests(of), options(by) {}

  std::span<const BenchRequest> requests;
  const LoadOptions& options;
  Json extra = Json::object();
  asio::io_context context{1};
  std::vector<Tcp::endpoint> endpoints;
  steady_clock::time_point start;
  std::array<char, read_bytes> buffer;  // handlers run one at a time and use up what they read
  int64_t num_tokens = 0;
  std::string server;

  double now_s() const { return std::chrono::duration<double>(steady_clock::now() - start).count(); }
};

std::string request_text(const Run& run, const BenchRequest& request) {
  const LoadOptions& options = run.options;
  Json body = {{"model", options.model}, {"max_tokens", request.max_tokens},
               {"temperature", 0},       {"stream", true},
               {"ignore_eos", true},     {"stream_options", {{"include_usage", true}}}};
  if (options.chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", request.prompt}}});
  } else {
    body["prompt"] = request.prompt;
  }
  body.update(run.extra);
  const std::string text = body.dump();
  const std::string key = options.api_key.empty() ? "" : "Authorization: Bearer " + options.api_key + "\r\n";
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n{}"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      path_of(options), host_of(options.url), key, text.size(), text);
}

int64_t count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

bool has_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() && !found->get_ref<const std::string&>().empty();
}

// One request from its connection to its end. Lives in the handlers that it leaves with the event loop.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Run& run, RequestRecord& record, std::function<void()> on_end)
      : run_(run),
        record_(record),
        on_end_(std::move(on_end)),
        socket_(run.context),
        events_([this](std::string_view data) { take_event(data); }),
        response_([this](std::string_view body) { take_body(body); }) {}

  void start() {
    record_.start_s = run_.now_s();
    outgoing_ = request_text(run_, run_.requests[record_.index]);
    asio::async_connect(socket_, run_.endpoints, [self = shared_from_this()](const Code& code, const Tcp::endpoint&) {
      if (code) return self->end(code.message());
      Code ignored;
      self->socket_.set_option(Tcp::no_delay(true), ignored);
      self->socket_.non_blocking(true, ignored);
      self->send();
    });
  }

  // Ends it from outside.
  void abandon(const std::string& why) { end(why); }

 private:
  void send() {
    asio::async_write(socket_, asio::buffer(outgoing_), [self = shared_from_this()](const Code& code, size_t) {
      if (code) return self->end(code.message());
      self->outgoing_ = {};
      self->wait();
    });
  }

  // Waits without a buffer, so that all streams can share one.
  void wait() {
    socket_.async_wait(Tcp::socket::wait_read, [self = shared_from_this()](const Code& code) {
      if (code) return self->end(code.message());
      self->read();
    });
  }

  void read() {
    if (ended_) return;
    Code code;
    now_s_ = run_.now_s();
    const size_t size = socket_.read_some(asio::buffer(run_.buffer), code);
    if (code == asio::error::would_block || code == asio::error::try_again) return wait();
    if (code == asio::error::eof) return finish();
    if (code) return end(code.message());
    const Result<void> done = response_.feed({run_.buffer.data(), size});
    if (!done) return end("the server sent " + done.error().message);
    if (response_.complete()) return finish();
    if (!ended_) wait();
  }

  void take_body(std::string_view body) {
    if (response_.status() == 200) {
      const Result<void> done = events_.feed(body);
      if (!done && problem_.empty()) problem_ = "the server sent " + done.error().message;
    } else if (refusal_.size() < most_error_bytes) {
      refusal_ += body.substr(0, most_error_bytes);
    }
  }

  void take_event(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const Result<Json> event = parse_json(data);
    if (!event || !event->is_object()) {
      problem_ = "the server sent an event that is no JSON object";
      return;
    }
    if (const auto found = event->find("error"); found != event->end() && !found->is_null()) {
      problem_ = printable(found->dump(), 200);
      return;
    }
    if (const auto usage = event->find("usage"); usage != event->end() && usage->is_object()) take_usage(*usage);
    const auto choices = event->find("choices");
    if (choices == event->end() || !choices->is_array() || choices->empty() || !choices->front().is_object()) return;
    if (is_token(choices->front())) {
      record_.token_s.push_back(now_s_);
      ++run_.num_tokens;
    }
  }

  void take_usage(const Json& usage) {
    record_.prompt_tokens = count_at(usage, "prompt_tokens");
    record_.output_tokens = count_at(usage, "completion_tokens");
    const auto details = usage.find("prompt_tokens_details");
    if (details != usage.end() && details->is_object()) record_.cached_tokens = count_at(*details, "cached_tokens");
  }

  // An empty first event only announces the role.
  bool is_token(const Json& choice) const {
    if (has_text(choice, "text")) return true;
    const auto delta = choice.find("delta");
    if (delta != choice.end() && delta->is_object() &&
        (has_text(*delta, "content") || has_text(*delta, "reasoning_content") || has_text(*delta, "reasoning"))) {
      return true;
    }
    const auto reason = choice.find("finish_reason");
    return !record_.token_s.empty() && (reason == choice.end() || reason->is_null());
  }

  void finish() {
    if (response_.status() != 0) run_.server = response_.server();
    if (response_.status() != 0 && response_.status() != 200) {
      return end(fmt::format("HTTP {}: {}", response_.status(), printable(refusal_, 300)));
    }
    if (!problem_.empty()) return end(problem_);
    if (const Result<void> whole = response_.finish(); !whole) return end(whole.error().message);
    end(done_ ? "" : "the stream ended without [DONE]");
  }

  void end(const std::string& problem) {
    if (std::exchange(ended_, true)) return;
    record_.error = problem;
    record_.end_s = run_.now_s();
    if (record_.output_tokens == 0) record_.output_tokens = static_cast<int64_t>(record_.token_s.size());
    Code ignored;
    socket_.close(ignored);
    std::exchange(on_end_, {})();
  }

  Run& run_;
  RequestRecord& record_;
  std::function<void()> on_end_;
  Tcp::socket socket_;
  EventReader events_;
  ResponseReader response_;
  std::string outgoing_, refusal_, problem_;
  double now_s_ = 0;
  bool done_ = false, ended_ = false;
};

class Load {
 public:
  Load(std::span<const BenchRequest> requests, const LoadOptions& options)
      : run_(requests, options),
        records_(requests.size()),
        streams_(requests.size()),
        sent_(requests.size()),
        arrival_timer_(run_.context),
        tick_timer_(run_.context) {}

  Result<LoadResult> run() {
    if (Result<void> ready = prepare(); !ready) return ready.error();
    const double cpu_before = cpu_seconds();
    run_.start = steady_clock::now();
    if (run_.options.open_loop) {
      arrive();
    } else {
      for (int32_t i = 0; i < run_.options.concurrency; ++i) start_next();
    }
    watch();
    run_.context.run();
    LoadResult result;
    result.wall_s = last_end_s_;
    result.client_cpu_s = cpu_seconds() - cpu_before;
    result.server = run_.server;
    for (size_t i = 0; i < records_.size(); ++i) {
      if (sent_[i]) result.records.push_back(std::move(records_[i]));
    }
    return result;
  }

 private:
  Result<void> prepare() {
    const LoadOptions& options = run_.options;
    if (!options.extra_fields.empty()) {
      Result<Json> extra = parse_json(options.extra_fields);
      if (!extra || !extra->is_object()) return error("the extra fields are no JSON object");
      run_.extra = *std::move(extra);
    }
    for (const BenchRequest& request : run_.requests) {
      if (!is_valid_utf8(request.prompt)) return error("a prompt is not UTF-8");
    }
    Code code;
    Tcp::resolver resolver(run_.context);
    for (const auto& entry : resolver.resolve(options.url.host, options.url.port, code)) {
      run_.endpoints.push_back(entry.endpoint());
    }
    if (code) return error("{}: {}", host_of(options.url), code.message());
    return {};
  }

  void start_next() {
    if (next_ == run_.requests.size() || stopped_) return;
    const size_t index = next_++;
    records_[index].index = index;
    records_[index].class_name = run_.requests[index].class_name;
    sent_[index] = true;
    ++num_open_;
    const auto stream = std::make_shared<Stream>(run_, records_[index], [this, index] {
      streams_[index].reset();
      --num_open_;
      ++num_done_;
      last_end_s_ = run_.now_s();
      // Posted, so that failures at once do not pile up calls.
      if (all_done()) tick_timer_.cancel();
      if (!run_.options.open_loop) asio::post(run_.context, [this] { start_next(); });
    });
    streams_[index] = stream;
    stream->start();
  }

  // Open loop: the requests whose time has come, then sleeps until the next.
  void arrive() {
    while (next_ < run_.requests.size() && !stopped_) {
      const double due_s = run_.requests[next_].arrival_s.value_or(0);
      if (due_s > run_.now_s()) {
        const auto due =
            run_.start + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(due_s));
        arrival_timer_.expires_at(due);
        arrival_timer_.async_wait([this](const Code& code) {
          if (!code) arrive();
        });
        return;
      }
      start_next();
    }
  }

  bool all_done() const { return num_open_ == 0 && (next_ == run_.requests.size() || stopped_); }

  void watch() {
    const LoadOptions& options = run_.options;
    if (options.on_progress) {
      options.on_progress({num_done_, run_.requests.size(), num_open_, run_.num_tokens, run_.now_s()});
    }
    if (run_.now_s() > options.limit_s) stop("the time limit of the run was reached");
    if (options.should_stop && options.should_stop()) stop("the run was interrupted");
    if (all_done()) return;
    tick_timer_.expires_after(tick);
    tick_timer_.async_wait([this](const Code& code) {
      if (!code) watch();
    });
  }

  void stop(const std::string& why) {
    if (std::exchange(stopped_, true)) return;
    arrival_timer_.cancel();
    const auto streams = streams_;
    for (const auto& stream : streams) {
      if (const auto open = stream.lock()) open->abandon(why);
    }
  }

  Run run_;
  std::vector<RequestRecord> records_;
  std::vector<std::weak_ptr<Stream>> streams_;  // the handlers own them
  std::vector<bool> sent_;
  asio::steady_timer arrival_timer_, tick_timer_;
  size_t next_ = 0, num_open_ = 0, num_done_ = 0;
  double last_end_s_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<LoadResult> run_load(std::span<const BenchRequest> requests, const LoadOptions& options) {
  return Load(requests, options).run();
}

Result<std::string> first_model(const HttpUrl& url, const std::string& api_key) {
  const std::string path = url.path.ends_with("/v1") ? "/models" : "/v1/models";
  const Result<HttpAnswer> answer = http_call(url, {"GET", path, api_key, ""});
  if (!answer) return answer.error();
  if (answer->status != 200) return error("{} answers {} to {}", host_of(url), answer->status, path);
  const Result<Json> models = parse_json(answer->body);
  const Json::json_pointer place("/data/0/id");
  if (!models || !models->contains(place) || !models->at(place).is_string()) {
    return error("{} names no model under {}", host_of(url), path);
  }
  return models->at(place).get<std::string>();
}

}  // namespace tidemill
