// The values of a template: what Python would hold, kept immutable.
//
// none, bool, integers (128 bits, so that every integer of a JSON file fits), floats, strings, sequences (list, tuple,
// range and the views of a dictionary share one form), dictionaries in insertion order, undefined, and objects with
// identity. The sandbox forbids changing lists and dictionaries, so they are shared freely, cannot contain themselves,
// and know their nesting depth when they are made; anything deeper than max_nesting is refused, which bounds every
// recursion over a value.
//
// Values are cheap to copy (a tag and a pointer). They belong to one rendering and one thread, except for literals of
// the parsed template, which are read by many threads and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace tidemill::jinja {

using Integer = __int128;
class Value;

inline constexpr int max_nesting = 200;

// `markup` marks a string that the `safe` or `escape` filter made: joining a plain string to it escapes that string.
struct String {
  Text text;
  size_t num_code_points = 0;
  bool markup = false;
};

struct Sequence {
  enum class Flavor : uint8_t { list, tuple, range, keys, values, items };
  Flavor flavor = Flavor::list;
  bool is_group = false;  // a tuple of groupby, whose two items are also called grouper and list
  int depth = 1;
  std::vector<Value> items;

  bool indexable() const { return flavor <= Flavor::range; }
};

class Dict;

class Value {
 public:
  enum class Kind : uint8_t { none, undefined, boolean, integer, real, string, sequence, dict, object };

  Value() = default;  // none
  static Value undefined(std::string message);
  static Value boolean(bool value) { return Value(Storage(std::in_place_index<2>, value)); }
  static Value integer(Integer value) { return Value(Storage(std::in_place_index<3>, value)); }
  static Value real(double value) { return Value(Storage(std::in_place_index<4>, value)); }
  static Value string(Text text, bool markup = false);
  static Value literal(std::string_view bytes) { return string(Text(std::string(bytes), true)); }
  static Value sequence(std::vector<Value> items, Sequence::Flavor flavor = Sequence::Flavor::list);
  static Value group(Value grouper, Value members);
  static Value dict(Dict dict);
  static Value object(Object* object) { return Value(Storage(std::in_place_index<8>, object)); }

  Kind kind() const { return static_cast<Kind>(storage_.index()); }
  bool is_none() const { return kind() == Kind::none; }
  bool is_undefined() const { return kind() == Kind::undefined; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_boolean() const { return kind() == Kind::boolean; }
  bool is_sequence() const { return kind() == Kind::sequence; }
  bool is_dict() const { return kind() == Kind::dict; }
  // Python's bool is an integer, too.
  bool is_integral() const { return kind() == Kind::integer || kind() == Kind::boolean; }
  bool is_number() const { return is_integral() || kind() == Kind::real; }

  // Each requires the kind of its name; as_integral and as_number take booleans as 0 and 1.
  const std::string& undefined_message() const { return *std::get<1>(storage_); }
  bool as_boolean() const { return std::get<2>(storage_); }
  Integer as_integral() const { return is_boolean() ? Integer{as_boolean()} : std::get<3>(storage_); }
  double as_real() const { return std::get<4>(storage_); }
  double as_number() const { return kind() == Kind::real ? as_real() : static_cast<double>(as_integral()); }
  const String& as_string() const { return *std::get<5>(storage_); }
  const Text& as_text() const { return as_string().text; }
  const Sequence& as_sequence() const { return *std::get<6>(storage_); }
  const Dict& as_dict() const { return *std::get<7>(storage_); }
  Object* as_object() const { return std::get<8>(storage_); }
  // The object if it is of type T, otherwise null.
  template <typename T>
  T* as() const {
    return kind() == Kind::object ? dynamic_cast<T*>(as_object()) : nullptr;
  }

  // Python's truth of a value.
  bool truthy() const;
  // 0 for scalars, 1 + the deepest element for sequences and dictionaries.
  int depth() const;
  // The name that messages use: 'str', 'list', 'NoneType', ...
  const char* type_name() const;
  // Same object in memory, as Python's `is`; scalars are compared by value.
  bool same_as(const Value& other) const;

 private:
  using Storage = std::variant<std::monostate, std::shared_ptr<const std::string>, bool, Integer, double,
                               std::shared_ptr<const String>, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, Object*>;
  explicit Value(Storage storage) : storage_(std::move(storage)) {}

  Storage storage_;
};

// Insertion order; a key that is set again keeps its place. Keys are strings, numbers, booleans, none or tuples of
// them.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

  // Fails on a key that Python could not hash.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

 private:
  static constexpr size_t index_from = 8;  // below, a scan is faster than a hash
  template <typename Matches>
  const Entry* locate(size_t hash, Matches matches) const;
  void add_to_index(size_t position);

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t> index_;
  int depth_ = 1;
};

// Equality and hash of dictionary keys: 1, 1.0 and true are one key; the origin of a string does not matter.
bool keys_equal(const Value& a, const Value& b);
size_t hash_key(const Value& key);

// A one-shot iterator, what Python's generators are: map, select, batch and the like give one.
class Generator : public Object {
 public:
  explicit Generator(std::vector<Value> items) : items(std::move(items)) {}
  const char* type_name() const override { return "generator"; }

  std::vector<Value> items;
  size_t next = 0;
};

// The elements a loop over the value would visit; takes what is left of a generator. Fails where Python's iter() would.
std::vector<Value> elements_of(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// Python's len(); fails on values that have none.
size_t length_of(const Value& value);
// The code points of a string, one value each.
std::vector<Value> characters_of(Runtime& runtime, const Value& value);

}  // namespace tidemill::jinja
