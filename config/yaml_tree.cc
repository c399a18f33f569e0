// yaml_tree.cc - a YAML document as a tree whose nodes have their places in the file (set-up only)
//
// yaml-cpp reports a document as events. Its own trees are not used: they follow aliases without end, drop all but one
// of equal keys, and forget the places of some nodes.
#include "config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <cstdlib>
#include <istream>
#include <sstream>

#include "base/error.h"

namespace gradlane {
namespace {

using Kind = YamlNode::Kind;

[[noreturn]] void refuse(const std::string& file, Place place, const std::string& what) {
  ConfigFaults faults(file);
  faults.add(place, "", what);
  faults.throw_first();
  std::abort();  // not reached
}

// Converts a mark, whose line and column count from 0.
Place place_of(const YAML::Mark& mark) {
  return {static_cast<unsigned>(mark.line) + 1, static_cast<unsigned>(mark.column) + 1};
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  [[nodiscard]] YamlNode& root() noexcept { return root_; }
  // Returns the place to report for a document that ends too early.
  [[nodiscard]] Place innermost() const noexcept { return open_.empty() ? root_.place : open_.back()->place; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) fault(mark, "a second document begins, allowed: one in a file");
    started_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(mark, Kind::kNull); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fault(mark, "aliases (*name) are not supported: write the value here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    check_tag(mark, tag);
    add(mark, Kind::kScalar).text = text;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, tag, Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  [[noreturn]] void fault(const YAML::Mark& mark, const std::string& what) const {
    refuse(file_, place_of(mark), what);
  }

  // Refuses tags. yaml-cpp itself gives texts in quotes the tag "!", and others "?".
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") fault(mark, "tags (!name) are not supported: leave it out");
  }

  // Adds a node to the innermost list or map that is open. The reference is valid until that list or map gets its next
  // child.
  YamlNode& add(const YAML::Mark& mark, Kind kind) {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    if (open_.empty()) return root_ = std::move(node);
    YamlNode& parent = *open_.back();
    const bool is_key = parent.kind == Kind::kMap && parent.keys.size() == parent.items.size();
    if (is_key && kind != Kind::kScalar) fault(mark, "no text where a key should be; is every bracket closed?");
    if (!is_key && parent.kind == Kind::kMap && kind == Kind::kNull) node.place = parent.keys.back().place;
    return (is_key ? parent.keys : parent.items).emplace_back(std::move(node));
  }

  // Opens a list or map. The parser calls itself for each level, so this limit keeps its stack short.
  void open(const YAML::Mark& mark, const std::string& tag, Kind kind) {
    check_tag(mark, tag);
    if (open_.size() == kMaxConfigDepth) {
      fault(mark, fmt::format("lists and maps are nested too deeply, allowed: {} levels", kMaxConfigDepth));
    }
    open_.push_back(&add(mark, kind));
  }

  const std::string& file_;
  bool started_ = false;
  YamlNode root_;
  std::vector<YamlNode*> open_;  // from the root inwards
};

// Refuses bytes that yaml-cpp would silently take for the end of the file or for another encoding.
void check_bytes(std::string_view text, const std::string& file) {
  Place place;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 && c != '\n' && c != '\r' && c != '\t';
    if (control || byte >= 0xfe) {
      refuse(file, place, fmt::format("byte 0x{:02x} where text should be, allowed: UTF-8", byte));
    }
    place = c == '\n' ? Place{place.line + 1, 1} : Place{place.line, place.column + 1};
  }
}

}  // namespace

YamlNode parse_yaml(std::string_view text, const std::string& file) {
  if (text.size() > kMaxConfigBytes) {
    throw SetupError(fmt::format("{}: the file is too long, allowed: {} bytes", file, kMaxConfigBytes));
  }
  check_bytes(text, file);
  TreeBuilder builder(file);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse(file, error.mark.is_null() ? builder.innermost() : place_of(error.mark), "not YAML: " + error.msg);
  }
  return std::move(builder.root());
}

}  // namespace gradlane
