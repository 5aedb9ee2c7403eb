#include "text/jinja/value.h"

#include <cmath>
#include <functional>

#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

constexpr size_t max_tuple_key = 64;

int checked_depth(int depth) {
  if (depth > max_nesting) fail("a value nests deeper than {} levels", max_nesting);
  return depth;
}

}  // namespace

Value Value::undefined(std::string message) {
  return Value(Storage(std::in_place_index<1>, std::make_shared<const std::string>(std::move(message))));
}

Value Value::string(Text text, bool markup) {
  const size_t num_code_points = count_code_points(text.view());
  return Value(Storage(std::in_place_index<5>,
                       std::make_shared<const String>(String{std::move(text), num_code_points, markup})));
}

namespace {

std::shared_ptr<Sequence> make_sequence(std::vector<Value> items, Sequence::Flavor flavor) {
  auto made = std::make_shared<Sequence>();
  made->flavor = flavor;
  for (const Value& item : items) made->depth = std::max(made->depth, checked_depth(item.depth() + 1));
  made->items = std::move(items);
  return made;
}

}  // namespace

Value Value::sequence(std::vector<Value> items, Sequence::Flavor flavor) {
  return Value(Storage(std::in_place_index<6>, make_sequence(std::move(items), flavor)));
}

Value Value::group(Value grouper, Value members) {
  auto made = make_sequence({std::move(grouper), std::move(members)}, Sequence::Flavor::tuple);
  made->is_group = true;
  return Value(Storage(std::in_place_index<6>, std::move(made)));
}

Value Value::dict(Dict dict) {
  return Value(Storage(std::in_place_index<7>, std::make_shared<const Dict>(std::move(dict))));
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::none:
    case Kind::undefined:
      return false;
    case Kind::boolean:
      return as_boolean();
    case Kind::integer:
      return as_integral() != 0;
    case Kind::real:
      return as_real() != 0;
    case Kind::string:
      return !as_text().empty();
    case Kind::sequence:
      return !as_sequence().items.empty();
    case Kind::dict:
      return as_dict().size() != 0;
    case Kind::object:
      return true;
  }
  return false;
}

int Value::depth() const {
  if (is_sequence()) return as_sequence().depth;
  if (is_dict()) return as_dict().depth();
  return 0;
}

const char* Value::type_name() const {
  switch (kind()) {
    case Kind::none:
      return "NoneType";
    case Kind::undefined:
      return "Undefined";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return as_string().markup ? "Markup" : "str";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return as_object()->type_name();
    case Kind::sequence:
      break;
  }
  static constexpr const char* flavors[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  return flavors[static_cast<size_t>(as_sequence().flavor)];
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::sequence:
      return &as_sequence() == &other.as_sequence();
    case Kind::dict:
      return &as_dict() == &other.as_dict();
    case Kind::object:
      return as_object() == other.as_object();
    case Kind::undefined:
      return storage_ == other.storage_;
    default:
      return keys_equal(*this, other);
  }
}

void Dict::set(Value key, Value value) {
  const size_t hash = hash_key(key);
  depth_ = std::max(depth_, checked_depth(std::max(key.depth(), value.depth()) + 1));
  if (const Entry* found = locate(hash, [&](const Value& other) { return keys_equal(key, other); })) {
    const_cast<Entry*>(found)->second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == index_from) {
    for (size_t i = 0; i < entries_.size(); ++i) add_to_index(i);
  } else if (entries_.size() > index_from) {
    index_.emplace(hash, static_cast<uint32_t>(entries_.size() - 1));
  }
}

void Dict::add_to_index(size_t position) {
  index_.emplace(hash_key(entries_[position].first), static_cast<uint32_t>(position));
}

template <typename Matches>
const Dict::Entry* Dict::locate(size_t hash, Matches matches) const {
  if (entries_.size() < index_from) {
    for (const Entry& entry : entries_) {
      if (matches(entry.first)) return &entry;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (matches(entries_[it->second].first)) return &entries_[it->second];
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  const size_t hash = hash_key(key);
  const Entry* entry = locate(hash, [&](const Value& other) { return keys_equal(key, other); });
  return entry == nullptr ? nullptr : &entry->second;
}

const Value* Dict::find(std::string_view key) const {
  const size_t hash = size() < index_from ? 0 : std::hash<std::string_view>()(key);
  const Entry* entry =
      locate(hash, [&](const Value& other) { return other.is_string() && other.as_text().view() == key; });
  return entry == nullptr ? nullptr : &entry->second;
}

bool keys_equal(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.as_text().bytes() == b.as_text().bytes();
  if (a.is_integral() && b.is_integral()) return a.as_integral() == b.as_integral();
  if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_sequence() && b.is_sequence()) {
    const auto& left = a.as_sequence().items;
    const auto& right = b.as_sequence().items;
    return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), keys_equal);
  }
  return a.kind() == Value::Kind::object && b.kind() == Value::Kind::object && a.as_object() == b.as_object();
}

size_t hash_key(const Value& key) {
  if (key.is_string()) return std::hash<std::string_view>()(key.as_text().view());
  if (key.is_number()) return std::hash<double>()(key.as_number());
  if (key.is_none()) return 0x6e6f6e65;
  if (key.kind() == Value::Kind::object) return std::hash<const void*>()(key.as_object());
  if (!key.is_sequence() || key.as_sequence().flavor != Sequence::Flavor::tuple) {
    fail("unhashable type: '{}'", key.type_name());
  }
  // Shared tuples of tuples would take exponential time; no real key looks like that.
  if (key.depth() > 1 || key.as_sequence().items.size() > max_tuple_key) {
    fail("a dictionary key may be a flat tuple of at most {} values", max_tuple_key);
  }
  size_t hash = 0x7475706c;
  for (const Value& item : key.as_sequence().items) hash = hash * 1000003 + hash_key(item);
  return hash;
}

std::vector<Value> characters_of(Runtime& runtime, const Value& value) {
  const String& string = value.as_string();
  runtime.charge_bytes(string.num_code_points * sizeof(String));
  std::vector<Value> characters;
  characters.reserve(string.num_code_points);
  for (size_t offset = 0; offset < string.text.size();) {
    const size_t size = code_point_at(string.text.view(), offset).size_bytes;
    characters.push_back(Value::string(string.text.slice(offset, offset + size), string.markup));
    offset += size;
  }
  return characters;
}

std::vector<Value> elements_of(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) {
    runtime.charge_steps(static_cast<int64_t>(value.as_string().num_code_points));
    return characters_of(runtime, value);
  }
  if (value.is_sequence()) {
    runtime.charge_steps(static_cast<int64_t>(value.as_sequence().items.size()));
    runtime.charge_bytes(value.as_sequence().items.size() * sizeof(Value));
    return value.as_sequence().items;
  }
  std::vector<Value> elements;
  if (value.is_dict()) {
    runtime.charge_steps(static_cast<int64_t>(value.as_dict().size()));
    runtime.charge_bytes(value.as_dict().size() * sizeof(Value));
    for (const Dict::Entry& entry : value.as_dict().entries()) elements.push_back(entry.first);
    return elements;
  }
  if (auto* generator = value.as<Generator>()) {
    runtime.charge_steps(static_cast<int64_t>(generator->items.size() - generator->next));
    elements.assign(generator->items.begin() + static_cast<ptrdiff_t>(generator->next), generator->items.end());
    generator->next = generator->items.size();
    return elements;
  }
  fail("'{}' object is not iterable", value.type_name());
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         value.as<Generator>() != nullptr;
}

size_t length_of(const Value& value) {
  if (value.is_string()) return value.as_string().num_code_points;
  if (value.is_sequence()) return value.as_sequence().items.size();
  if (value.is_dict()) return value.as_dict().size();
  if (value.is_undefined()) return 0;
  fail("object of type '{}' has no len()", value.type_name());
}

}  // namespace tidemill::jinja
