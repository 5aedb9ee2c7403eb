#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "cli/text_source.h"
#include "server/http/http_client.h"

namespace tidemill {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// Cuts server-sent events out of bytes that come in any pieces, and hands over the data of each.
class EventReader {
 public:
  explicit EventReader(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}

  void feed(std::string_view bytes) {
    pending_ += bytes;
    size_t begin = 0;
    for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string_view line(pending_.data() + begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("data:")) on_data_(line.substr(line.starts_with("data: ") ? 6 : 5));
    }
    pending_.erase(0, begin);
  }

 private:
  std::function<void(std::string_view)> on_data_;
  std::string pending_;
};

std::string text_at(const Json& value, const char* pointer) {
  const Json::json_pointer place(pointer);
  return value.contains(place) && value.at(place).is_string() ? value.at(place).get<std::string>() : "";
}

int64_t number_at(const Json& value, const char* pointer) {
  const Json::json_pointer place(pointer);
  return value.contains(place) && value.at(place).is_number_integer() ? value.at(place).get<int64_t>() : 0;
}

Error server_error(int status, const std::string& body) {
  const Result<Json> parsed = parse_json(body);
  const std::string message = parsed ? text_at(*parsed, "/error/message") : "";
  if (!message.empty()) return error("the server answers {}: {}", status, message);
  return error("the server answers {}: {}", status, printable(body, 200));
}

class RemoteSource final : public TextSource {
 public:
  RemoteSource(HttpUrl url, ServerAddress address) : url_(std::move(url)), address_(std::move(address)) {}

  std::string model_name() const override { return address_.model; }

  // The server's first model, where none was named.
  Result<void> find_model() {
    if (!address_.model.empty()) return {};
    const Result<HttpAnswer> answer = http_call(url_, {"GET", "/v1/models", address_.api_key, ""});
    if (!answer) return answer.error();
    if (answer->status != 200) return server_error(answer->status, answer->body);
    const Result<Json> models = parse_json(answer->body);
    if (models) address_.model = text_at(*models, "/data/0/id");
    if (address_.model.empty()) return error("the server names no model under /v1/models");
    return {};
  }

  Result<Answer> chat(const nlohmann::ordered_json& messages, const SamplingOptions& sampling,
                      const AnswerCallbacks& callbacks) override {
    Json body = body_for(sampling);
    body["messages"] = messages;
    return stream("/v1/chat/completions", "/choices/0/delta/content", body, callbacks);
  }

  Result<Answer> complete(const std::string& prompt, const SamplingOptions& sampling,
                          const AnswerCallbacks& callbacks) override {
    Json body = body_for(sampling);
    body["prompt"] = prompt;
    return stream("/v1/completions", "/choices/0/text", body, callbacks);
  }

 private:
  Json body_for(const SamplingOptions& sampling) const {
    Json body = {{"model", address_.model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    const auto set = [&body](const char* key, const auto& value) {
      if (value) body[key] = *value;
    };
    set("temperature", sampling.temperature);
    set("top_p", sampling.top_p);
    set("min_p", sampling.min_p);
    set("top_k", sampling.top_k);
    set("repetition_penalty", sampling.repetition_penalty);
    set("seed", sampling.seed);
    set("max_tokens", sampling.max_tokens);
    return body;
  }

  Result<Answer> stream(const std::string& path, const char* text_pointer, const Json& body,
                        const AnswerCallbacks& callbacks) const {
    const Clock::time_point start = Clock::now();
    const auto seconds = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    Answer answer;
    std::string failure;
    EventReader events([&](std::string_view data) {
      if (data == "[DONE]") return;
      const Result<Json> event = parse_json(data);
      if (!event) return;
      if (const std::string message = text_at(*event, "/error/message"); !message.empty()) failure = message;
      if (const std::string text = text_at(*event, text_pointer); !text.empty()) {
        if (answer.text.empty()) answer.first_token_seconds = seconds();
        answer.text += text;
        callbacks.on_text(text);
      }
      if (const std::string reason = text_at(*event, "/choices/0/finish_reason"); !reason.empty()) {
        answer.finish_reason = reason;
      }
      if (event->contains("usage") && (*event)["usage"].is_object()) {
        answer.prompt_tokens = number_at(*event, "/usage/prompt_tokens");
        answer.completion_tokens = number_at(*event, "/usage/completion_tokens");
        answer.cached_tokens = number_at(*event, "/usage/prompt_tokens_details/cached_tokens");
      }
    });
    const Result<HttpAnswer> reply = http_call(
        url_, {"POST", path, address_.api_key, body.dump(-1, ' ', false, Json::error_handler_t::replace)},
        [&events](std::string_view bytes) { events.feed(bytes); }, callbacks.should_stop);
    answer.total_seconds = seconds();
    if (!reply) return reply.error();
    if (reply->stopped) {
      answer.finish_reason = "abort";
      return answer;
    }
    if (reply->status != 200) return server_error(reply->status, reply->body);
    if (!failure.empty()) return error("the server ended the answer: {}", failure);
    return answer;
  }

  HttpUrl url_;
  ServerAddress address_;
};

}  // namespace

Result<std::unique_ptr<TextSource>> make_remote_source(const ServerAddress& address) {
  Result<HttpUrl> url = HttpUrl::parse(address.url);
  if (!url) return url.error();
  if (url->path.ends_with("/v1")) url->path.resize(url->path.size() - 3);
  auto source = std::make_unique<RemoteSource>(*std::move(url), address);
  if (Result<void> found = source->find_model(); !found) return found.error();
  return std::unique_ptr<TextSource>(std::move(source));
}

}  // namespace tidemill
