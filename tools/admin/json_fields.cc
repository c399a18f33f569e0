// json_fields.cc - access to fields of a document that may lack any of them (no I/O)
#include "tools/admin/json_fields.h"

namespace gradlane {

std::string text_at(const nlohmann::json& of, const char* key) {
  const auto it = of.find(key);
  return it != of.end() && it->is_string() ? it->get<std::string>() : "";
}

uint64_t number_at(const nlohmann::json& of, const char* key) {
  const auto it = of.find(key);
  return it != of.end() && it->is_number() ? it->get<uint64_t>() : 0;
}

bool flag_at(const nlohmann::json& of, const char* key) {
  const auto it = of.find(key);
  return it != of.end() && it->is_boolean() && it->get<bool>();
}

nlohmann::json list_at(const nlohmann::json& of, const char* key) {
  const auto it = of.find(key);
  return it != of.end() && it->is_array() ? *it : nlohmann::json::array();
}

nlohmann::json object_at(const nlohmann::json& of, const char* key) {
  const auto it = of.find(key);
  return it != of.end() && it->is_object() ? *it : nlohmann::json::object();
}

}  // namespace gradlane
