// What one rendering may use up, and the objects that live as long as it does.
//
// One Runtime per call of ChatTemplate::render, used by one thread. Every part of the engine that does work in
// proportion to its input charges it here, so that no template and no request can run for ever, fill memory or overflow
// the stack. A limit that is hit throws Fault, as every error of an expression does; Fault never leaves
// text/chat_template.cpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tidemill {
struct RenderOptions;
}

namespace tidemill::jinja {

// Thrown inside the engine only; ends the rendering (or the parsing).
struct Fault {
  std::string message;
  bool raised_by_template = false;
};

template <typename... Arguments>
[[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Fault{fmt::format(format, std::forward<Arguments>(arguments)...)};
}

// A value with identity: macro, namespace, loop, iterator. Owned by the Runtime; values refer to it by pointer, so that
// a namespace that contains itself is neither a leak nor an endless destructor.
class Object {
 public:
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
};

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options) : options_(options) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const RenderOptions& options() const { return options_; }

  // One step is one node evaluated, or one element looked at.
  void charge_steps(int64_t count);
  // Bytes of a string or object that is about to be made. All of them together are bounded, freed or not.
  void charge_bytes(size_t count);

  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    charge_bytes(sizeof(T) + object_overhead_bytes);
    auto owned = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }

  // Held while one more level of the C++ stack is in use.
  class Level {
   public:
    explicit Level(Runtime& runtime);
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  static constexpr size_t object_overhead_bytes = 32;

  const RenderOptions& options_;
  int64_t steps_ = 0;
  int64_t built_bytes_ = 0;
  int64_t depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace tidemill::jinja
